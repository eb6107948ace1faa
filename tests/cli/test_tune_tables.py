"""Rows of the tables by hand."""

from dataclasses import replace

import pytest

from draftwood.cli._tune_tables import target_rows
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fit import Sample

COSTS = StepCosts(
    Curve((1, 5), (8.0, 12.0), per_context=0.01), {"draft": Curve((1, 5), (1.0, 3.0))}, 1.0, 0.5
)


def test_break_even_is_the_steps_cost_over_a_plain_steps() -> None:
    timed = [Sample(3, 100, 1, 10.5)]
    plain, tree = target_rows(COSTS, timed, (1, 3), 100, 1)
    assert (plain.nodes, plain.timed, plain.ratio, plain.break_even) == (0, None, 1.0, 0.0)
    assert plain.break_even_chains == (0.0,)
    assert (tree.nodes, tree.timed, tree.seconds) == (2, 10.5, 11.0)
    assert tree.ratio == pytest.approx(11 / 9)
    # A plain step is 9 + 1; this one 11 + 1 + 2 * 0.5, with two draft forwards of 1 for a chain.
    assert tree.break_even == pytest.approx(0.3)
    assert tree.break_even_chains == pytest.approx((0.5,))


def test_without_a_drafter_there_is_no_chain() -> None:
    (row,) = target_rows(StepCosts(COSTS.target), [], (3,), 100, 1)
    assert row.break_even_chains == ()


def test_each_drafter_has_a_chain() -> None:
    both = replace(COSTS, drafters={**COSTS.drafters, "eagle3": Curve((1, 5), (2.0, 2.0))})
    (row,) = target_rows(both, [], (3,), 100, 1)
    assert row.break_even_chains == pytest.approx((0.5, 0.7))


def test_a_batch_shares_its_forwards() -> None:
    (row,) = target_rows(COSTS, [], (2,), 100, 2)
    # Roots: 2 tokens; trees: 4 tokens, one level of 2 nodes, 2 drafted ones.
    assert row.ratio == pytest.approx((11 + 2) / (9 + 2))
    assert row.break_even_chains == pytest.approx(((13 + 1.5 + 1 + 1) / 12 - 1,))
