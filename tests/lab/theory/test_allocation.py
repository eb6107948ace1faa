"""GOOSE Proposition 2: where Eq. 2 is the optimum, where it is not, and what rounding costs."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from draftwood.lab.theory.allocation import (
    algorithm1_split,
    clipped_allocation,
    eq2_allocation,
    greedy_allocation,
    harmonic_allocation,
    largest_remainder,
)
from draftwood.lab.theory.yields import (
    AcceptanceRates,
    FloatArray,
    branch_success,
    break_probabilities,
    exit_probabilities,
    synergy,
)

examples = settings(max_examples=150)
inside = st.floats(0.01, 0.99)
PAPER_MEDIAN = AcceptanceRates(0.21, 0.033)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write `total` as an ordered sum of `parts` non-negative integers."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def value(entry: FloatArray, widths: ArrayLike, p_t: float) -> float:
    return float(entry @ branch_success(widths, p_t))


def water_filled_allocation(spine_length: int, branches: int, rates: AcceptanceRates) -> FloatArray:
    """max(0, w_0 - i * slope): Eq. 2 on as many first nodes as keep every width non-negative."""
    widths = eq2_allocation(spine_length, branches, rates)
    while widths[-1] < 0.0:
        widths = eq2_allocation(len(widths) - 1, branches, rates)
    return np.concatenate([widths, np.zeros(spine_length - len(widths))])


@pytest.mark.parametrize("p_t", [0.0, 0.033, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("p_s", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_greedy_marginal_equals_brute_force(p_s: float, p_t: float) -> None:
    for m, branches in product((1, 2, 3, 4), (0, 1, 3, 6)):
        for entry in (break_probabilities(m, p_s), exit_probabilities(m, p_s)):
            greedy = greedy_allocation(entry, branches, p_t)
            best = max(value(entry, w, p_t) for w in compositions(branches, len(entry)))
            assert greedy.sum() == branches
            assert value(entry, greedy, p_t) == pytest.approx(best, abs=1e-14)


def test_brute_force_can_tell_a_worse_allocation() -> None:
    entry = break_probabilities(3, 0.5)
    assert value(entry, (1, 1, 4), 0.3) < value(entry, greedy_allocation(entry, 6, 0.3), 0.3) - 0.1


@examples
@given(inside, inside, st.integers(2, 20), st.integers(0, 60))
def test_eq2_is_linear_in_depth_with_the_slope_it_names(
    p_s: float, p_t: float, m: int, branches: int
) -> None:
    rates = AcceptanceRates(p_s, p_t)
    widths = eq2_allocation(m, branches, rates)
    slope = np.log(p_s) / np.log(1 - p_t)
    assert slope > 0
    assert np.diff(widths) == pytest.approx(np.full(m - 1, -slope))
    assert widths.sum() == pytest.approx(branches, abs=1e-6)
    log_marginal = np.arange(m) * np.log(p_s) + widths * np.log(1 - p_t)
    assert log_marginal == pytest.approx(np.full(m, log_marginal[0]))


@examples
@given(inside, inside, st.integers(1, 20), st.integers(0, 60))
def test_water_filling_satisfies_the_optimality_conditions(
    p_s: float, p_t: float, m: int, branches: int
) -> None:
    """Equal marginals where w > 0, no larger one where w = 0, nothing negative, budget spent."""
    rates = AcceptanceRates(p_s, p_t)
    widths = water_filled_allocation(m, branches, rates)
    marginal = np.arange(m) * np.log(p_s) + widths * np.log(1 - p_t)
    assert (widths >= 0).all()
    assert widths.sum() == pytest.approx(branches, abs=1e-6)
    assert (np.diff(widths) <= 0).all()
    if branches:
        level = marginal[0]
        assert marginal[widths > 0] == pytest.approx(np.full((widths > 0).sum(), level), abs=1e-9)
        assert (marginal[widths == 0] <= level + 1e-9).all()


@examples
@given(inside, inside, st.integers(1, 20), st.integers(0, 60))
def test_water_filling_rounded_is_the_integer_optimum(
    p_s: float, p_t: float, m: int, branches: int
) -> None:
    """Common threshold: floor plus one for the largest fractions is ceil(level - i * slope)."""
    rates, entry = AcceptanceRates(p_s, p_t), break_probabilities(m, p_s)
    real = water_filled_allocation(m, branches, rates)
    best = value(entry, greedy_allocation(entry, branches, p_t), p_t)
    assert value(entry, largest_remainder(real, branches), p_t) == pytest.approx(best, rel=1e-7)
    assert value(entry, real, p_t) >= best - 1e-9


@examples
@given(inside, inside, st.integers(1, 20), st.integers(1, 60))
def test_rounded_eq2_is_optimal_exactly_when_nothing_had_to_be_clipped(
    p_s: float, p_t: float, m: int, branches: int
) -> None:
    rates, entry = AcceptanceRates(p_s, p_t), break_probabilities(m, p_s)
    clipped = clipped_allocation(m, branches, rates)
    loss = value(entry, greedy_allocation(entry, branches, p_t), p_t) - value(entry, clipped, p_t)
    assert clipped.sum() == branches
    assert (clipped >= 0).all()
    assert loss >= -1e-9
    if eq2_allocation(m, branches, rates).min() >= 0:
        assert loss == pytest.approx(0.0, abs=1e-7)


def test_eq2_is_no_allocation_at_the_papers_own_median_rates() -> None:
    """p_s = 0.21, p_t = 0.033, m = 9, 50 branches: 192 at the root, -181 at the last node.

    The optimum is 48 + 2. Proposition 2 as printed leaves out w >= 0.
    """
    printed = eq2_allocation(9, 50, PAPER_MEDIAN)
    assert printed[0] == pytest.approx(191.6, abs=0.05)
    assert printed[-1] == pytest.approx(-180.5, abs=0.05)
    entry = break_probabilities(9, PAPER_MEDIAN.p_s)
    best = greedy_allocation(entry, 50, PAPER_MEDIAN.p_t)
    assert best.tolist() == [48, 2, 0, 0, 0, 0, 0, 0, 0]
    clipped = clipped_allocation(9, 50, PAPER_MEDIAN)
    assert clipped.tolist() == [19, 15, 10, 5, 1, 0, 0, 0, 0]
    optimum = synergy(entry, best, PAPER_MEDIAN.p_t, 6)
    assert synergy(entry, clipped, PAPER_MEDIAN.p_t, 6) < 0.7 * optimum


def test_the_harmonic_rule_loses_to_the_optimum_where_the_slope_is_steep_and_flat() -> None:
    """It fits neither end: p_s = 0.21 wants everything at the root, p_s = 0.99 nearly a uniform."""
    for p_s, floor in ((0.21, 0.2), (0.99, 0.02)):
        entry = break_probabilities(9, p_s)
        best = value(entry, greedy_allocation(entry, 50, 0.033), 0.033)
        harmonic = value(entry, harmonic_allocation(9, 50), 0.033)
        assert harmonic < (1 - floor) * best


@examples
@given(inside, inside, st.integers(1, 20), st.integers(0, 60))
def test_the_harmonic_rule_never_beats_the_optimum(
    p_s: float, p_t: float, m: int, branches: int
) -> None:
    entry, harmonic = break_probabilities(m, p_s), harmonic_allocation(m, branches)
    assert (np.diff(harmonic) <= 0).all()
    assert max(0, branches - m + 1) <= harmonic.sum() <= branches
    best = value(entry, greedy_allocation(entry, branches, p_t), p_t)
    assert value(entry, harmonic, p_t) <= best + 1e-12


def test_the_harmonic_rule_by_hand() -> None:
    """H_3 = 11/6, so 11 branches split 6, 3, 2 with nothing left; in floats 11 / H_3 may not."""
    assert harmonic_allocation(3, 11).tolist() == [6, 3, 2]
    assert harmonic_allocation(3, 10).tolist() == [5, 2, 1]
    assert harmonic_allocation(1, 7).tolist() == [7]
    for scale in range(1, 40):
        assert harmonic_allocation(4, 25 * scale).sum() == 25 * scale


def test_the_optimum_at_high_p_s_feeds_the_tip_that_eq1_leaves_out() -> None:
    widths = greedy_allocation(exit_probabilities(20, 0.9), 39, 0.03)
    assert widths[-1] == max(widths) == 17


def test_algorithm1_split_at_the_papers_budget() -> None:
    """B = 60 is 59 drafted nodes; r = 0.3 allows 18 spine nodes."""
    split = algorithm1_split(59, 5, 0.3)
    assert (split.spine, split.root, split.shared) == (5, 27, 27)
    assert split.per_node == (11, 5, 3, 2, 2)
    long = algorithm1_split(59, 20, 0.3)
    assert (long.spine, long.root, long.shared) == (18, 20, 21)
    none = algorithm1_split(59, 0, 0.3)
    assert (none.spine, none.root, none.shared, none.per_node) == (0, 29, 30, ())
    assert algorithm1_split(99, 40, 0.29).spine == 29
    assert algorithm1_split(5, 20, 1.0).spine == 5
