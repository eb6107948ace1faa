"""What further sources say shifts an estimate, by as much as it has been worth."""

import math

import numpy as np
import pytest

from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.features import (
    COPIED,
    NEURAL,
    NOT_ASKED,
    NOT_LISTED,
    SOURCES,
    TABLE,
    Codes,
    Source,
    neural_source,
)
from draftwood.policies.auto.offsets import Learnt, Offsets, OffsetTable, begin, place_of
from draftwood.protocols import Evidence, Feature
from tests.policies.auto.codes import copied_code

MINE = Source("mine", Evidence(ranked=(Feature("score", (0.5,)),)))
YOURS = Source("yours", Evidence(ranked=(Feature("score", (0.5,)),)))
LOW, HIGH = 2, 3
"""Codes of the two."""
FOREVER = 1e12
NOTHING: Learnt = ([0.0] * 8, [0.0] * 8)


def sigmoid(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


def test_an_offset_is_of_a_code_and_of_whether_another_source_lists_the_token() -> None:
    assert place_of((NOT_LISTED, NOT_ASKED, NOT_ASKED, HIGH), 3) == 2 * HIGH
    assert place_of((5, NOT_ASKED, NOT_ASKED, HIGH), 3) == 2 * HIGH + 1
    assert place_of((NOT_LISTED, NOT_ASKED, NOT_ASKED, HIGH, LOW), 3) == 2 * HIGH + 1
    assert place_of((NOT_LISTED, NOT_ASKED, NOT_ASKED, HIGH, LOW), 4) == 2 * LOW + 1


def test_offsets_add_up_in_log_odds() -> None:
    mine, yours = (0.0,) * 6 + (2.0, -1.0), (0.0,) * 4 + (0.5, 0.25, 0.0, 0.0)
    table = OffsetTable((mine, yours))
    for codes, odds in (
        ((1, 1, 0, HIGH, NOT_ASKED), 2.0),
        ((5, 1, 0, HIGH, NOT_ASKED), -1.0),
        ((1, 1, 0, HIGH, LOW), -1.0 + 0.25),
        ((1, 1, 0, NOT_ASKED, LOW), 0.5),
        ((1, 1, 0, NOT_ASKED, NOT_ASKED), 0.0),
    ):
        assert table.shifted(codes, 0.3) == pytest.approx(sigmoid(math.log(0.3 / 0.7) + odds))
    assert table.shifted((1, 1, 0, HIGH, NOT_ASKED), 1.0) == 1.0, "nothing shifts certainty"


def test_a_frozen_table_does_not_learn() -> None:
    of = Offsets([NOTHING], FOREVER)
    frozen = of.table
    of.observe((1, 0, 0, HIGH), 0.5, taken=True)
    assert frozen != of.table
    assert frozen == Offsets([NOTHING], FOREVER).table


def taught(
    rates: dict[Codes, float], base: float, sources: int, steps: int = 4000, seed: int = 0
) -> Offsets:
    """Offsets after candidates were taken at some rates, where the counts say ``base``."""
    of, random = Offsets([NOTHING] * sources, FOREVER), np.random.default_rng(seed)
    for _ in range(steps):
        for codes, rate in rates.items():
            of.observe(codes, of.table.shifted(codes, base), bool(random.random() < rate))
    return of


def test_estimates_converge_to_what_is_taken() -> None:
    rates: dict[Codes, float] = {
        (1, 0, 0, HIGH): 0.9,
        (1, 0, 0, LOW): 0.1,
        (5, 0, 0, HIGH): 0.6,
        (1, 0, 0, NOT_LISTED): 0.02,
    }
    table = taught(rates, base=0.3, sources=1).table
    for codes, rate in rates.items():
        assert table.shifted(codes, 0.3) == pytest.approx(rate, abs=0.03)


def test_sources_that_say_the_same_share_what_it_is_worth() -> None:
    """As if independent, each would have all of it, and both together would be far too sure."""
    both: Codes = (1, 0, 0, HIGH, HIGH)
    of = taught({both: 0.8}, base=0.2, sources=2)
    assert of.table.shifted(both, 0.2) == pytest.approx(0.8, abs=0.03)
    mine, yours = (values[2 * HIGH + 1] for values in of.table.values)
    assert mine == pytest.approx(yours)


def test_it_follows_a_source_that_changes() -> None:
    codes: Codes = (1, 0, 0, HIGH)
    fast, slow = Offsets([NOTHING], 50.0), Offsets([NOTHING], FOREVER)
    for step in range(800):
        for of in (fast, slow):
            of.observe(codes, of.table.shifted(codes, 0.3), taken=step < 400)
            of.fade()
    assert fast.table.shifted(codes, 0.3) < 0.05 < slow.table.shifted(codes, 0.3)


def test_no_offset_is_without_bounds() -> None:
    of = Offsets([NOTHING], FOREVER)
    for _ in range(50):
        of.observe((1, 0, 0, HIGH), 1e-4, taken=True)
    assert of.table.values[0][2 * HIGH] == 8.0


def test_a_new_source_begins_with_half_of_what_a_like_one_is_worth() -> None:
    odds = {
        (COPIED, copied_code(4, preferred=True, first=True)): 1.0,
        (COPIED, copied_code(9, preferred=True, first=True)): 3.0,
        (TABLE, 2): -2.0,
        (TABLE, 2 + 5): 2.0,
    }

    def odds_of(position: int, code: int) -> float:
        return odds.get((position, code), 0.0)

    copies = Source("c", Evidence(copied=(Feature("match_length", (4, 9)), Feature("first"))))
    values, curvatures = begin(copies, odds_of, common=-1.0)
    found = [values[2 * code] for code in range(2, copies.codes)]
    # Further down a chain nothing is known here: as all candidates are, which have -1.
    assert found == pytest.approx([0.5, 0.5, 0.5, 1.0, 0.5, 2.0])
    assert not any(values[1::2]), "beside another source"
    assert not any(values[:4]), "without an answer, or without the token"
    assert not any(curvatures)
    ranks = Source("r", Evidence(ranked=(Feature("score", (0.2, 0.35)),)))
    values, _ = begin(ranks, odds_of, common=-1.0)
    assert [values[2 * code] for code in (2, 3, 4)] == pytest.approx([-0.5, 0.5, 1.5])


def test_a_calibration_learns_what_a_further_source_is_worth() -> None:
    of, random = Calibration(sources=(*SOURCES, MINE, YOURS)), np.random.default_rng(3)
    rates: dict[Codes, float] = {
        (9, 0, 0, NOT_LISTED, NOT_ASKED): 0.3,
        (9, 0, 0, HIGH, NOT_ASKED): 0.9,
        (1, 0, 0, HIGH, LOW): 0.5,
        (1, 0, 0, NOT_ASKED, LOW): 0.05,
    }
    counts = of.at(0.0)
    for _ in range(600):
        taken = [bool(random.random() < rate) for rate in rates.values()]
        counts.observe([*rates], taken)
        counts.fade()
    for codes, rate in rates.items():
        assert counts.acceptance.probability(codes) == pytest.approx(rate, abs=0.12)
    assert {len(codes) for codes in counts.totals()} == {3}


def test_candidates_that_no_further_source_may_list_cost_no_snapshot() -> None:
    counts = Calibration(sources=(*SOURCES, MINE)).at(0.0)
    counts.observe([(9, 0, 0)], [True])
    rows, learnt = counts._counts, counts._offsets.learnt()
    counts.observe([(9, 0, 0), (9, 0, 0)], [True, False])
    assert counts._counts is rows
    assert counts._offsets.learnt() == learnt
    counts.observe([(9, 0, 0), (9, 0, 0, HIGH)], [True, False])
    assert counts._counts is not rows
    assert counts._offsets.learnt() != learnt


def test_a_further_neural_source_begins_as_the_first_one() -> None:
    source = neural_source("eagle3")

    def odds(position: int, code: int) -> float:
        return 0.01 * code if position == NEURAL else 1e6

    values, curvatures = begin(source, odds, 0.2)
    assert values[4::2] == pytest.approx([0.5 * (0.01 * n - 0.2) for n in range(2, source.codes)])
    assert not any(values[:4]), "nothing where it lists nothing"
    assert not any(values[1::2]), "nor where another source lists the token"
    assert len(values) == len(curvatures) == 2 * SOURCES[NEURAL].codes
