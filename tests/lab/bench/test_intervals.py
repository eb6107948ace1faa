"""Bootstrap intervals, against resampling written out and against the truth they should cover."""

import math

import numpy as np
import pytest

from draftwood.lab.bench.intervals import Estimate, Median, Ratio, median_interval, ratio_intervals


def test_a_median_has_its_interval_around_it_and_is_repeatable() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = median_interval(values)
    assert found.median == 3.0
    low, high = ends(found)
    assert 1.0 <= low <= 3.0 <= high <= 100.0
    assert found == median_interval(values)


def test_intervals_narrow_with_more_groups() -> None:
    few, many = (ends(median_interval([1.0, 2.0, 3.0, 4.0] * n)) for n in (1, 50))
    assert many[1] - many[0] < few[1] - few[0]


def test_a_median_is_covered_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1).exponential(size=(200, 25))
    found = [ends(median_interval(list(values), resamples=300)) for values in draws]
    hits = sum(low <= math.log(2) <= high for low, high in found)
    assert 0.88 <= hits / 200 <= 1.0


def test_a_ratio_is_covered_about_as_often_as_it_says() -> None:
    # Groups of unequal weight, three accepted of ten on average.
    chance = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        drafted = chance.integers(5, 200, size=(40, 1))
        accepted = chance.binomial(drafted, 0.3)
        (found,) = ratio_intervals(accepted.astype(float), drafted.astype(float), resamples=300)
        low, high = ends(found)
        hits += low <= 0.3 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_ratios_equal_resampling_written_out() -> None:
    top = np.array([[3.0, 1.0], [10.0, 0.0], [4.0, 2.0], [9.0, 7.0]])
    bottom = np.array([[4.0, 5.0], [20.0, 1.0], [5.0, 3.0], [9.0, 8.0]])
    drawn = np.random.default_rng(0).integers(4, size=(2000, 4))
    for column, found in enumerate(ratio_intervals(top, bottom)):
        sums = [
            sum(top[g, column] for g in each) / sum(bottom[g, column] for g in each)
            for each in drawn
        ]
        assert found.value == top[:, column].sum() / bottom[:, column].sum()
        assert (found.low, found.high) == pytest.approx(tuple(np.percentile(sums, [2.5, 97.5])))


def test_a_ratio_that_is_the_same_everywhere_is_certain() -> None:
    (found,) = ratio_intervals(np.array([[1.0], [2.0], [5.0]]), np.array([[2.0], [4.0], [10.0]]))
    assert found == Ratio(0.5, 0.5, 0.5)


def test_resamples_without_a_denominator_are_left_out() -> None:
    # A quarter of them draws the empty group twice: 0 / 0.
    (found,) = ratio_intervals(np.array([[0.0], [3.0]]), np.array([[0.0], [4.0]]))
    assert found == Ratio(0.75, 0.75, 0.75)


def test_too_little_data_is_none() -> None:
    assert median_interval([4.0]) == Median(4.0)
    assert median_interval([]) == Median(None, None, None)
    assert ratio_intervals(np.array([[3.0]]), np.array([[4.0]])) == [Ratio(0.75, None, None)]
    assert ratio_intervals(np.zeros((3, 1)), np.zeros((3, 1))) == [Ratio()]
    assert ratio_intervals(np.zeros((0, 0)), np.zeros((0, 0))) == []
    assert ratio_intervals(np.zeros((0, 1)), np.zeros((0, 1))) == [Ratio()]


def ends(found: Estimate) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high
