"""Bootstrap intervals, against resampling written out."""

import numpy as np
import pytest

from draftwood.lab.bench.intervals import Median, Ratio, median_interval, ratio_intervals


def test_a_median_equals_resampling_written_out() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 100.0])
    drawn = np.median(values[np.random.default_rng(0).integers(6, size=(2000, 6))], axis=1)
    found = median_interval(list(values))
    assert found.median == 3.5
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])))
    assert found == median_interval(list(values))


def test_ratios_equal_resampling_written_out() -> None:
    top = np.array([[3.0, 1.0], [10.0, 0.0], [4.0, 2.0], [9.0, 7.0], [1.0, 1.0], [2.0, 0.5]])
    bottom = np.array([[4.0, 5.0], [20.0, 1.0], [5.0, 3.0], [9.0, 8.0], [3.0, 2.0], [2.0, 2.0]])
    drawn = np.random.default_rng(0).integers(6, size=(2000, 6))
    for column, found in enumerate(ratio_intervals(top, bottom)):
        sums = [
            sum(top[g, column] for g in each) / sum(bottom[g, column] for g in each)
            for each in drawn
        ]
        assert found.value == top[:, column].sum() / bottom[:, column].sum()
        assert (found.low, found.high) == pytest.approx(tuple(np.percentile(sums, [2.5, 97.5])))


def test_a_ratio_that_is_the_same_everywhere_is_certain() -> None:
    tops = np.arange(1.0, 7.0)[:, None]
    (found,) = ratio_intervals(tops, 2 * tops)
    assert found == Ratio(0.5, 0.5, 0.5)


def test_resamples_without_a_denominator_are_left_out() -> None:
    # A third of them draws none but empty groups: 0 / 0.
    tops = np.array([[0.0]] * 5 + [[3.0]])
    (found,) = ratio_intervals(tops, tops / 0.75)
    assert found == Ratio(0.75, 0.75, 0.75)


def test_too_little_data_is_none() -> None:
    assert median_interval([4.0]) == Median(4.0)
    assert median_interval([4.0, 1.0, 2.0, 7.0, 3.0]) == Median(3.0), "five enclose too little"
    assert median_interval([]) == Median(None, None, None)
    assert ratio_intervals(np.array([[3.0]] * 5), np.array([[4.0]] * 5)) == [Ratio(0.75)]
    assert ratio_intervals(np.zeros((3, 1)), np.zeros((3, 1))) == [Ratio()]
    assert ratio_intervals(np.zeros((0, 0)), np.zeros((0, 0))) == []
    assert ratio_intervals(np.zeros((0, 1)), np.zeros((0, 1))) == [Ratio()]
