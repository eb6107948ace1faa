"""GOOSE Proposition 4: where Algorithm 1 and the bypass degrade, and where they do not."""

from collections import Counter
from itertools import product

import pytest

from draftwood.lab.theory.nondegradation import algorithm1_tree, non_degradation, spine_ratio
from draftwood.lab.theory.rated_tree import chain, expected_yield
from draftwood.lab.theory.yields import AcceptanceRates

PAPER_P_T = 0.033


def test_spine_ratio_tiers() -> None:
    tiers = [spine_ratio(p_s) for p_s in (0.0, 0.19, 0.2, 0.39, 0.4, 1.0)]
    assert tiers == [0.15, 0.15, 0.3, 0.3, 0.5, 0.5]


def test_algorithm1_tree_by_hand() -> None:
    """Eleven nodes, r = 0.3: 3 spine, 4 at the root, 4 shared as 2, 1, 0, one left for a leaf."""
    rates = AcceptanceRates(0.5, 0.1)
    tree = algorithm1_tree(11, 5, rates, 0.3)
    assert tree.parents == (-1, 0, 1, 2, 0, 0, 0, 0, 1, 1, 2, 4)
    assert tree.rates[1:4] == (0.5, 0.5, 0.5)
    assert set(tree.rates[4:]) == {0.1}


def test_algorithm1_tree_keeps_its_caps() -> None:
    tree = algorithm1_tree(300, 4, AcceptanceRates(0.5, 0.1), 0.15, branch_depth=2, max_children=7)
    depth = [0]
    for parent in tree.parents[1:]:
        depth.append(depth[parent] + 1)
    branches = Counter(
        parent for parent, rate in zip(tree.parents, tree.rates, strict=True) if rate == 0.1
    )
    assert max(branches.values()) == 7
    assert max(depth) == 4 + 2
    assert tree.drafted < 300
    assert algorithm1_tree(59, 20, AcceptanceRates(0.9, 0.1), 0.5).drafted == 59


def test_no_match_is_a_pure_transition_tree() -> None:
    tree = algorithm1_tree(59, 0, AcceptanceRates(0.9, 0.1), 0.3)
    assert tree.parents[1:11] == (0,) * 10
    assert set(tree.rates[1:]) == {0.1}


def test_it_holds_without_bypass_in_the_papers_regime() -> None:
    """B = 60, p_t = 0.033, any p_s >= 0.05, matches of up to 20 tokens."""
    for p_s, match in product((0.05, 0.1, 0.21, 0.3, 0.4, 0.6, 0.8, 0.95), (1, 2, 4, 7, 8, 14, 20)):
        outcome = non_degradation(59, match, AcceptanceRates(p_s, PAPER_P_T), bypass_length=None)
        assert not outcome.bypassed
        assert outcome.margin > 0
        assert outcome.goose > outcome.transition


def test_the_bypass_never_beats_the_spine_tree_that_holds_the_same_chain() -> None:
    """With the true p_s the tree keeps the chain and adds to it whenever m <= floor(B r)."""
    for p_s, p_t in product((0.4, 0.6, 0.8, 0.9, 0.95, 0.99), (PAPER_P_T, 0.1, 0.2)):
        for match in (8, 14, 20):
            outcome = non_degradation(59, match, AcceptanceRates(p_s, p_t))
            assert outcome.bypassed
            assert outcome.spine > outcome.chain


def test_the_bypass_pays_when_the_running_estimate_is_too_low() -> None:
    """A match that is really at 0.95 while the estimate still says r = 0.15: 9 of 20 tokens fit."""
    rates = AcceptanceRates(0.95, PAPER_P_T)
    cut_short = expected_yield(algorithm1_tree(59, 20, rates, spine_ratio(0.1)))
    assert expected_yield(chain(20, rates.p_s)) > cut_short + 4


def test_a_short_match_fits_the_smallest_ratio_from_budget_47_on() -> None:
    """The proof's "fit within floor(B r) even at the minimum ratio" is true of B = 60, not all."""
    rates = AcceptanceRates(0.1, PAPER_P_T)
    for paper_budget, fits in ((46, False), (47, True), (60, True)):
        tree = algorithm1_tree(paper_budget - 1, 7, rates, 0.15)
        assert (tree.rates.count(0.1) == 7) is fits


@pytest.mark.parametrize(
    ("budget", "match", "p_s", "p_t", "bypassed", "margin"),
    [
        (59, 20, 0.1, PAPER_P_T, True, -0.2),  # the bare chain yields 1.11, transitions 1.33
        (59, 8, 0.21, PAPER_P_T, True, -0.05),  # the paper's median rates
        (59, 7, 0.21, 0.2, False, -0.09),  # the spine costs more breadth than it brings
        (8, 7, 0.9, PAPER_P_T, False, -1),  # floor(9 / 2) = 4 of seven matched tokens fit
    ],
)
def test_counterexamples(
    budget: int, match: int, p_s: float, p_t: float, bypassed: bool, margin: float
) -> None:
    outcome = non_degradation(budget, match, AcceptanceRates(p_s, p_t))
    assert outcome.bypassed is bypassed
    assert outcome.margin < margin
