"""Metrics from rows that are checked by hand."""

import math

import pytest

from draftwood.bench.aggregate import aggregate, interval, report, speeds, without_looping
from draftwood.stats import Tally
from tests.bench.made import row


def test_interval_holds_its_median_and_is_repeatable() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = interval(values)
    assert found.median == 3.0
    assert 1.0 <= found.low <= 3.0 <= found.high <= 100.0
    assert found == interval(values)


def test_interval_narrows_with_more_values() -> None:
    few, many = interval([1.0, 2.0, 3.0, 4.0]), interval([1.0, 2.0, 3.0, 4.0] * 50)
    assert many.high - many.low < few.high - few.low


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    import numpy as np

    draws = np.random.default_rng(1).exponential(size=(200, 25))
    found = [interval(list(values), resamples=300) for values in draws]
    hits = sum(i.low <= math.log(2) <= i.high for i in found)
    assert 0.88 <= hits / 200 <= 1.0


def test_one_value_has_no_interval() -> None:
    assert interval([4.0]).median == 4.0
    assert math.isnan(interval([4.0]).low)
    assert math.isnan(interval([]).median)


def test_speed_is_the_median_over_repeats() -> None:
    rows = [row(repeat=i, tokens=10, seconds=s) for i, s in enumerate([1.0, 2.0, 10.0])]
    assert speeds(rows) == {0: 5.0}


def test_a_group_has_one_speed() -> None:
    # Two prompts decoded together, one of them gone after its only turn.
    rows = [row("a", seconds=4.0, tokens=30), row("b", seconds=1.0, tokens=10)]
    assert speeds(rows) == {0: 10.0}


def test_speedups_are_paired() -> None:
    plain = [row("a", group=0, seconds=1.0), row("b", group=1, seconds=10.0)]
    fast = [row("a", group=0, seconds=0.5), row("b", group=1, seconds=5.0)]
    found = aggregate(fast, plain).speedup_vs_ar
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)
    # Unpaired prompts (the reference was interrupted) do not count.
    assert aggregate(fast, plain[:1]).speedup_vs_ar.median == 2.0
    assert math.isnan(aggregate(fast, []).speedup_vs_ar.median)


def tally(committed: int, steps: int, drafted: int, accepted: int) -> Tally:
    made = Tally(steps=steps, committed=committed, drafted=drafted, accepted=accepted)
    made.drafted_by_source.update(context=drafted - 10, adjacency=10)
    made.accepted_by_source.update(context=accepted - 1, adjacency=1)
    made.routes.update(spine=steps)
    made.seconds.update({"draft": 1, "target": 6, "verify": 1, "commit": 1, "learn": 1})
    return made


def test_ratios_are_pooled() -> None:
    rows = [
        row("a", group=0, tally=tally(40, 10, 110, 31)),
        row("b", group=1, tally=tally(20, 20, 110, 11)),
    ]
    found = aggregate(rows, [])
    assert found.mean_acceptance_length == 60 / 30
    assert found.acceptance_rate == 42 / 220
    assert found.p_s == 40 / 200
    assert found.p_t == 2 / 20
    assert found.target_calls == 30
    assert found.routes == {"spine": 30}
    assert found.overhead_percent == pytest.approx(40.0)
    assert found.tokens == 20


def test_speed_ups_are_predicted_from_the_phases() -> None:
    plain = row("a", tally=tally(10, 10, 110, 31))  # 6 s in 10 target calls: 0.6 s a call
    drafting = tally(30, 10, 110, 31)
    drafting.draft_calls = 50
    drafting.seconds.update({"target": 3})
    found = aggregate([row("a", tally=drafting)], [plain])
    assert (found.draft_calls, found.draft_efficiency) == (50, 5.0)
    c = (1 / 50) / 0.6
    assert found.predicted_speedup == pytest.approx(3 / (1 + c * 5))
    assert found.predicted_speedup_with_verification == pytest.approx(3 / (0.9 / 0.6 + c * 5))
    unknown = aggregate([row("a", tally=drafting)], [])
    assert math.isnan(unknown.predicted_speedup)


def test_a_prompt_is_identical_only_if_all_its_repeats_are() -> None:
    rows = [
        row("a", repeat=0, identical=True),
        row("a", repeat=1, identical=False),
        row("b", group=1, repeat=0, identical=True),
        row("c", group=2, identical=None),
    ]
    found = aggregate(rows, [])
    assert (found.identical, found.compared, found.prompts) == (1, 2, 3)


def test_looping_groups_are_left_out_whole() -> None:
    rows = [
        row("a", group=0),
        row("b", group=0, looping=True),
        row("c", group=1),
    ]
    assert [r.id for r in without_looping(rows)] == ["c"]
    assert aggregate(rows, []).looping_prompts == 1


def test_the_report_has_every_set_with_and_without_looping() -> None:
    rows = [
        row("a", group=0, set="x", seconds=1.0),
        row("b", group=1, set="y", seconds=2.0, looping=True),
    ]
    found = report(rows, rows)
    sets = found["by_set"]
    assert isinstance(sets, dict)
    assert set(sets) == {"x", "y"}
    assert sets["x"]["tokens_per_second"]["median"] == 10.0
    assert sets["y"]["without_looping"]["prompts"] == 0
    left = found["without_looping"]
    assert isinstance(left, dict)
    assert left["prompts"] == 1
    assert left["looping_prompts"] == 0


def test_no_rows_are_no_error() -> None:
    found = aggregate([], [])
    assert found.prompts == 0
    assert math.isnan(found.tokens_per_second.median)
    assert math.isnan(found.overhead_percent)
