"""GOOSE Proposition 3: the version that holds, on a grid, and the printed one's counterexamples."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from draftwood.lab.theory.dominance import (
    best_isotropic_yield,
    best_single_rate_yield,
    best_two_source_yield,
    isotropic_yield,
    paid_spine_yield,
    printed_spine_yield,
)
from draftwood.lab.theory.rated_tree import (
    RatedTree,
    enumerated_longest_yield,
    enumerated_yield,
    expected_yield,
    spine_tree,
)
from draftwood.lab.theory.yields import AcceptanceRates, branch_success, eq1_bound

BUDGETS = (5, 10, 20, 59, 100)
TRANSITION_RATES = (0.01, 0.033, 0.05, 0.1, 0.2, 0.3)


def all_parents(nodes: int) -> Iterator[tuple[int, ...]]:
    """Every tree of `nodes` drafted nodes, parents before children, in every sibling order."""
    for parents in product(*(range(node) for node in range(1, nodes + 1))):
        yield (-1, *parents)


def fan_out(parents: tuple[int, ...]) -> int:
    return max(parents.count(node) for node in range(len(parents)))


def with_spine(parents: tuple[int, ...], length: int, rates: AcceptanceRates) -> RatedTree | None:
    """The tree with `length` spine tokens along its first children; None if it is shallower."""
    chances, node = [1.0, *[rates.p_t] * (len(parents) - 1)], 0
    for _ in range(length):
        if node not in parents:
            return None
        node = parents.index(node)
        chances[node] = rates.p_s
    return RatedTree(parents, tuple(chances))


def best_spine(budget: int, rates: AcceptanceRates, *, paid: bool) -> float:
    family = paid_spine_yield if paid else printed_spine_yield
    return max(family(budget, m, rates, 6) for m in range(1, min(budget, 20) + 1))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.45, 0.8, 1.0])
def test_the_single_rate_optimum_equals_brute_force(p: float) -> None:
    for nodes in range(6):
        for cap in (None, 1, 2):
            best = max(
                expected_yield(RatedTree(parents, (1.0, *[p] * nodes)))
                for parents in all_parents(nodes)
                if cap is None or not nodes or fan_out(parents) <= cap
            )
            assert best_single_rate_yield(nodes, p, cap) == pytest.approx(best, rel=1e-13)


@pytest.mark.parametrize("rates", [(0.6, 0.2), (0.3, 0.25), (0.9, 0.5), (0.2, 0.6), (1.0, 0.0)])
def test_the_two_source_optimum_equals_brute_force(rates: tuple[float, float]) -> None:
    both = AcceptanceRates(*rates)
    for nodes, longest in product(range(6), (0, 1, 2, 5)):
        candidates = (
            with_spine(parents, length, both)
            for parents in all_parents(nodes)
            for length in range(longest + 1)
        )
        best = max(expected_yield(tree) for tree in candidates if tree is not None)
        assert best_two_source_yield(nodes, longest, both) == pytest.approx(best, rel=1e-13)


def test_a_fan_out_cap_costs_breadth() -> None:
    assert best_single_rate_yield(59, 0.033, 10) < best_single_rate_yield(59, 0.033) - 0.5
    assert best_single_rate_yield(5, 0.3, 1) == pytest.approx(1 + sum(0.3**k for k in range(1, 6)))


def test_the_single_rate_optimum_is_not_a_balanced_tree() -> None:
    """The paper says the search "reduces to a balanced k-ary tree"; later siblings get less."""
    assert best_single_rate_yield(59, 0.3) > best_isotropic_yield(59, 0.3) + 0.1
    for budget, p in product(BUDGETS[:4], TRANSITION_RATES):
        assert best_single_rate_yield(budget, p) >= best_isotropic_yield(budget, p) - 1e-12
    assert best_isotropic_yield(20, 0.3) == max(isotropic_yield(20, k, 0.3) for k in range(1, 21))


@pytest.mark.parametrize("budget", [1, 2, *BUDGETS])
def test_some_spine_tree_always_beats_the_best_single_rate_tree(budget: int) -> None:
    """Proposition 3 over all trees, strict for p_s > p_t from one node on; gap 0 at p_s = p_t."""
    for p_t in (0.0, *TRANSITION_RATES, 0.7):
        single = best_single_rate_yield(budget, p_t)
        gaps = [
            best_two_source_yield(budget, 20, AcceptanceRates(p_s, p_t)) - single
            for p_s in np.linspace(p_t, 1.0, 6)
        ]
        assert gaps[0] == pytest.approx(0.0, abs=1e-12)
        assert all(np.diff(gaps) > 0)


def test_eq1_trees_win_where_the_rates_are_far_apart() -> None:
    """Every node paid for, best m up to 20: on this grid the paper's ratio of 3 is enough."""
    for budget, p_t, ratio in product(BUDGETS, TRANSITION_RATES, (3.0, 6.0, 18.0)):
        if ratio * p_t < 1.0:
            rates = AcceptanceRates(ratio * p_t, p_t)
            assert best_spine(budget, rates, paid=True) > best_single_rate_yield(budget, p_t)


def test_an_eq1_tree_is_a_tree_of_its_budget() -> None:
    """`paid_spine_yield` is reached by a tree within budget, so the two-source optimum caps it."""
    for budget, p_t, ratio in product((5, 10, 20), (0.1, 0.3), (1.05, 2.0, 3.0)):
        rates = AcceptanceRates(ratio * p_t, p_t)
        best = best_two_source_yield(budget, 20, rates)
        assert best_spine(budget, rates, paid=True) <= best + 1e-12
    rates = AcceptanceRates(0.5, 0.3)
    assert paid_spine_yield(5, 1, rates, 6) == pytest.approx(
        max(enumerated_yield(spine_tree(1, [4 // length], rates, length)) for length in range(1, 5))
    )


def test_counterexample_a_spine_that_is_too_long() -> None:
    """m is given, not chosen, in the statement: B = m + 2 = 59 at six times p_t loses half."""
    rates = AcceptanceRates(0.198, 0.033)
    assert printed_spine_yield(59, 57, rates, 6) < 1.32
    assert best_single_rate_yield(59, 0.033) > 1.86
    assert printed_spine_yield(59, 3, rates, 6) > best_single_rate_yield(59, 0.033)


def test_counterexample_a_small_budget() -> None:
    """B = 5 = m + 2, p_s = 0.15, p_t = 0.1: Eq. 1 loses, paid or not; a better tree exists."""
    rates = AcceptanceRates(0.15, 0.1)
    assert paid_spine_yield(5, 3, rates, 6) <= printed_spine_yield(5, 3, rates, 6)
    assert printed_spine_yield(5, 3, rates, 6) < best_single_rate_yield(5, 0.1) - 0.05
    assert best_two_source_yield(5, 3, rates) > best_single_rate_yield(5, 0.1)


def test_the_gap_of_eq1_trees_does_not_vanish_at_equal_rates() -> None:
    equal = AcceptanceRates(0.3, 0.3)
    assert best_spine(59, equal, paid=True) < best_single_rate_yield(59, 0.3) - 0.2


def test_the_gap_does_not_always_grow_with_the_ratio() -> None:
    """It grows with p_s at fixed p_t; at fixed p_s = 0.3 a smaller p_t can shrink it."""

    def gap(p_t: float) -> float:
        rates = AcceptanceRates(0.3, p_t)
        return best_two_source_yield(59, 20, rates) - best_single_rate_yield(59, p_t)

    assert gap(0.02) < gap(0.06)
    assert gap(0.06) > gap(0.1) > gap(0.2) > gap(0.3) - 1e-12


def test_the_replacement_lemma_fails_for_a_shallow_spine() -> None:
    """E.3, step 1: a better first token "strictly improves yield". Not before a deeper sibling.

    A spine of one leaf, tried first, and one chain of six at p_t = 0.6: raising p_s from 0.6 to
    0.7 takes walks away from the chain. The longest accepted path does improve.
    """
    before, after = (spine_tree(1, [1], AcceptanceRates(p_s, 0.6), 6) for p_s in (0.6, 0.7))
    assert enumerated_yield(after) < enumerated_yield(before) - 0.03
    assert enumerated_longest_yield(after) > enumerated_longest_yield(before)
    bounds = [eq1_bound(1, [1], AcceptanceRates(p_s, 0.6), 6) for p_s in (0.6, 0.7)]
    assert bounds == pytest.approx([enumerated_yield(before), enumerated_yield(after)])


def test_the_level_formula_of_the_proof_counts_other_parents_children() -> None:
    """E.3 uses sum_d prod_{j<=d} q_j + 1 with q_d over all candidates at depth d.

    On the complete binary tree of depth two only the accepted node's two children can be reached.
    """
    two, four = (float(branch_success(width, 0.4)) for width in (2, 4))
    assert isotropic_yield(6, 2, 0.4) == pytest.approx(1 + two + two * two)
    assert isotropic_yield(6, 2, 0.4) < 1 + two + two * four - 0.1


@pytest.mark.parametrize(
    ("budget", "p_s", "p_t", "paid"),
    [
        (59, 0.21, 0.2, False),  # close rates, extensions unpaid
        (59, 0.3, 0.2, True),  # half again as good
        (100, 0.2, 0.1, True),  # twice as good: more budget makes the single-rate tree wider
    ],
)
def test_counterexamples_at_the_best_spine(budget: int, p_s: float, p_t: float, paid: bool) -> None:
    assert best_spine(budget, AcceptanceRates(p_s, p_t), paid=paid) < best_single_rate_yield(
        budget, p_t
    )
