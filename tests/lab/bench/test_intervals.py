"""Bootstrap intervals, against resampling written out and against the truth they should cover."""

import math

import numpy as np
import pytest

from draftwood.lab.bench.intervals import Ratio, median_interval, ratio_intervals


def test_a_median_has_its_interval_around_it_and_is_repeatable() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = median_interval(values)
    assert found.median == 3.0
    assert 1.0 <= found.low <= 3.0 <= found.high <= 100.0
    assert found == median_interval(values)


def test_intervals_narrow_with_more_groups() -> None:
    few, many = median_interval([1.0, 2.0, 3.0, 4.0]), median_interval([1.0, 2.0, 3.0, 4.0] * 50)
    assert many.high - many.low < few.high - few.low


def test_a_median_is_covered_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1).exponential(size=(200, 25))
    found = [median_interval(list(values), resamples=300) for values in draws]
    hits = sum(i.low <= math.log(2) <= i.high for i in found)
    assert 0.88 <= hits / 200 <= 1.0


def test_a_ratio_is_covered_about_as_often_as_it_says() -> None:
    # Groups of unequal weight, three accepted of ten on average.
    chance = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        drafted = chance.integers(5, 200, size=(40, 1))
        accepted = chance.binomial(drafted, 0.3)
        (found,) = ratio_intervals(accepted.astype(float), drafted.astype(float), resamples=300)
        hits += found.low <= 0.3 <= found.high
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


def test_too_little_to_tell_is_nan() -> None:
    assert median_interval([4.0]).median == 4.0
    assert math.isnan(median_interval([4.0]).low)
    assert math.isnan(median_interval([]).median)
    (one,) = ratio_intervals(np.array([[3.0]]), np.array([[4.0]]))
    assert one.value == 0.75
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    (none,) = ratio_intervals(np.zeros((3, 1)), np.zeros((3, 1)))
    assert math.isnan(none.value)
    assert math.isnan(none.low)
    assert ratio_intervals(np.zeros((0, 0)), np.zeros((0, 0))) == []
    (empty,) = ratio_intervals(np.zeros((0, 1)), np.zeros((0, 1)))
    assert math.isnan(empty.value)
