"""GOOSE Eq. 1 and its parts: closed forms, when the bound is tight, and when it is no bound."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.lab.theory.rated_tree import (
    RatedTree,
    enumerated_yield,
    expected_yield,
    spine_tree,
)
from draftwood.lab.theory.yields import (
    AcceptanceRates,
    branch_success,
    break_probabilities,
    eq1_bound,
    exit_probabilities,
    extension_length,
    synergy,
)

examples = settings(max_examples=60)
probability = st.floats(0.0, 1.0)


@examples
@given(probability, st.integers(1, 12))
def test_extension_length_is_the_sum_it_closes(p_t: float, depth: int) -> None:
    assert extension_length(p_t, depth) == pytest.approx(
        sum(p_t**k for k in range(1, depth)), rel=1e-12, abs=1e-300
    )


def test_extension_length_at_the_ends_and_next_to_one() -> None:
    assert extension_length(0.0, 6) == 0.0
    assert extension_length(1.0, 6) == 5.0
    assert extension_length(0.7, 1) == 0.0
    p_t = 1.0 - 1e-9
    exact = float(sum(Fraction(p_t) ** k for k in range(1, 6)))
    assert extension_length(p_t, 6) == pytest.approx(exact, rel=1e-15)
    cancelling = p_t * (1.0 - p_t**5) / (1.0 - p_t)
    assert abs(cancelling / exact - 1.0) > 1e-9


def test_branch_success_counts_at_least_one_acceptance() -> None:
    assert branch_success([0, 1, 2, 3], 0.5).tolist() == pytest.approx([0.0, 0.5, 0.75, 0.875])
    assert branch_success([0, 1, 7], 1.0).tolist() == [0.0, 1.0, 1.0]
    assert branch_success([0, 1, 7], 0.0).tolist() == [0.0, 0.0, 0.0]
    assert float(branch_success(1e6, 1e-12)) == pytest.approx(1e-6, rel=1e-5)


def test_entry_probabilities() -> None:
    assert break_probabilities(3, 0.5).tolist() == pytest.approx([0.5, 0.25, 0.125])
    assert exit_probabilities(3, 0.5).tolist() == pytest.approx([0.5, 0.25, 0.125, 0.125])
    assert exit_probabilities(0, 0.3).tolist() == [1.0]
    assert exit_probabilities(20, 0.9).sum() == pytest.approx(1.0)
    assert exit_probabilities(2, 0.0).tolist() == [1.0, 0.0, 0.0]


def test_eq1_by_hand() -> None:
    """m = 2, w = (3, 1), p_s = 1/2, p_t = 1/4, D = 3: ell = 5/16, phi = 37/64 and 1/4."""
    bound = eq1_bound(2, [3, 1], AcceptanceRates(0.5, 0.25), 3)
    assert bound == pytest.approx(1.75 + (37 / 128 + 1 / 16) * 21 / 16)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], AcceptanceRates, int]:
    """Widths, rates and branch depth of an Eq. 1 tree small enough to enumerate."""
    m = draw(st.integers(1, 4))
    depth = draw(st.integers(1, 3))
    widths = [0] * m
    for _ in range(draw(st.integers(0, (8 - m) // depth))):
        widths[draw(st.integers(0, m - 1))] += 1
    return widths, AcceptanceRates(draw(probability), draw(probability)), depth


@examples
@given(shapes())
def test_eq1_is_exact_when_every_branch_is_a_whole_chain(
    shape: tuple[list[int], AcceptanceRates, int],
) -> None:
    """Tight as the paper says, for the walk: all m and w_i, every branch a chain of D tokens."""
    widths, rates, depth = shape
    tree = spine_tree(len(widths), widths, rates, depth)
    bound = eq1_bound(len(widths), widths, rates, depth)
    assert bound == pytest.approx(enumerated_yield(tree), rel=1e-12)
    assert bound == pytest.approx(expected_yield(tree), rel=1e-12)


@examples
@given(shapes(), st.data())
def test_eq1_is_a_lower_bound_once_its_chains_are_there(
    shape: tuple[list[int], AcceptanceRates, int], data: st.DataObject
) -> None:
    """Whatever else is added below the chains, as a last sibling or a leaf, only helps."""
    widths, rates, depth = shape
    tree = spine_tree(len(widths), widths, rates, depth)
    parents, chances = list(tree.parents), list(tree.rates)
    for _ in range(data.draw(st.integers(1, 3))):
        parents.append(data.draw(st.integers(0, len(parents) - 1)))
        chances.append(rates.p_t)
    larger = RatedTree(tuple(parents), tuple(chances))
    assert enumerated_yield(larger) >= eq1_bound(len(widths), widths, rates, depth) - 1e-12


def test_proposition_1_fails_with_the_budget_it_prints() -> None:
    """m + sum(w) <= B pays for branch tokens only; then (1 + ell) is not earned.

    m = 1, w = (1), D = 2, p_s = p_t = 1/2: Eq. 1 says 1.875, the two-node tree yields 1.75.
    """
    rates = AcceptanceRates(0.5, 0.5)
    two_nodes = spine_tree(1, [1], rates, 1)
    assert two_nodes.drafted == 2
    assert enumerated_yield(two_nodes) == pytest.approx(1.75)
    assert eq1_bound(1, [1], rates, 2) == pytest.approx(1.875)
    assert eq1_bound(1, [1], rates, 1) == pytest.approx(1.75)


def test_extending_only_one_branch_of_each_node_is_not_enough_either() -> None:
    rates = AcceptanceRates(0.5, 0.5)
    whole = spine_tree(1, [2], rates, 2)
    one_extended = RatedTree(whole.parents[:-1], whole.rates[:-1])
    assert enumerated_yield(one_extended) < eq1_bound(1, [2], rates, 2) - 0.01


def test_a_positively_correlated_spine_can_fall_below_eq1() -> None:
    """The paper: correlation "only makes the bound tighter". Not where a branch beats the spine.

    Spine tokens all accepted together with probability p_s (perfect correlation, same marginals):
    the walk never leaves at node 1, where three branches were worth more than one spine token.
    """
    rates, widths, depth = AcceptanceRates(0.5, 0.4), [0, 3], 6
    together = rates.p_s * expected_yield(
        spine_tree(2, widths, AcceptanceRates(1.0, rates.p_t), depth)
    ) + (1 - rates.p_s) * expected_yield(
        spine_tree(2, widths, AcceptanceRates(0.0, rates.p_t), depth)
    )
    bound = eq1_bound(2, widths, rates, depth)
    assert together == pytest.approx(2.0)
    assert bound > 2.07
    without_branches = eq1_bound(2, [0, 0], rates, depth)
    assert together > without_branches


def test_eq1_has_no_term_for_branches_at_the_tip() -> None:
    """Algorithm 1 puts a_m branches there; they are entered with p_s^m, without 1 - p_s."""
    rates = AcceptanceRates(0.8, 0.2)
    tree = spine_tree(2, [1, 1, 2], rates, 3)
    bound = eq1_bound(2, [1, 1], rates, 3)
    with_tip = eq1_bound(2, [0, 0], rates, 3) + synergy(
        exit_probabilities(2, 0.8), [1, 1, 2], 0.2, 3
    )
    assert expected_yield(tree) == pytest.approx(with_tip)
    assert expected_yield(tree) > bound + 0.2
