"""Metrics from rows that are checked by hand."""

import pytest

from draftwood.engine.stats import Tally
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.aggregate import (
    Baselines,
    aggregate,
    method_entry,
    speeds,
    speedup,
    without_looping,
)
from draftwood.lab.bench.document import MethodResult
from draftwood.lab.bench.figures import Metrics, RunRow, SourceRate
from draftwood.lab.bench.intervals import Median, Ratio, median_interval
from tests.factories.bench_rows import random_steps, row, step, tree

ALONE = Baselines()


def alone(*rows: RunRow) -> Metrics:
    return aggregate(rows, ALONE)


def test_speed_is_the_median_over_repeats() -> None:
    rows = [row(repeat=i, tokens=10, seconds=s) for i, s in enumerate([1.0, 2.0, 10.0])]
    assert speeds(rows) == {(0, 0): 5.0}


def test_a_group_has_one_speed() -> None:
    # Two prompts decoded together, one of them gone after its only turn.
    rows = [row("a", seconds=4.0, tokens=30), row("b", seconds=1.0, tokens=10)]
    assert speeds(rows) == {(0, 0): 10.0}


def test_a_groups_speed_is_the_median_over_seeds() -> None:
    group = [
        row("a", run_seed=seed, seconds=10 / speed, repeat=repeat)
        for seed, found in enumerate([(1.0, 3.0, 2.0), (10.0, 10.0, 10.0), (4.0, 4.0, 40.0)])
        for repeat, speed in enumerate(found)
    ]
    assert speeds(group) == pytest.approx({(0, 0): 2.0, (0, 1): 10.0, (0, 2): 4.0})
    other = row("b", group=1, seconds=10 / 6)
    found = alone(*group, other).tokens_per_second
    # One value a group, however many seeds it was decoded with: 4 and 6, not 2, 10, 4 and 6.
    assert found.median == pytest.approx(5.0)


def test_speedups_are_paired_by_group_and_seed() -> None:
    plain = [row("a", group=0, seconds=1.0), row("b", group=1, seconds=10.0)]
    fast = [row("a", group=0, seconds=0.5), row("b", group=1, seconds=5.0)]
    found = aggregate(fast, Baselines(plain)).speedup_vs_ar
    assert (found.median, found.low, found.high) == (2.0, None, None)
    many = [row(group=n, seconds=1.0 + n) for n in range(6)]
    twice = [row(group=n, seconds=(1.0 + n) / 2) for n in range(6)]
    assert aggregate(twice, Baselines(many)).speedup_vs_ar == Median(2.0, 2.0, 2.0)
    # Unpaired prompts (the reference was interrupted) do not count.
    assert aggregate(fast, Baselines(plain[:1])).speedup_vs_ar.median == 2.0
    assert alone(*fast).speedup_vs_ar.median is None
    seeds = [row(run_seed=0, seconds=1.0), row(run_seed=1, seconds=100.0)]
    faster = [row(run_seed=0, seconds=0.5), row(run_seed=1, seconds=25.0), row(run_seed=2)]
    assert aggregate(faster, Baselines(seeds)).speedup_vs_ar.median == 3.0  # of 2 and 4


def test_transformers_plain_generate_is_a_baseline_of_its_own() -> None:
    found = aggregate([row()], Baselines([row(seconds=2.0)], [row(seconds=3.0)]))
    assert (found.speedup_vs_ar.median, found.speedup_vs_hf.median) == (2.0, 3.0)
    assert aggregate([row()], Baselines([row()])).speedup_vs_hf.median is None


def test_times_are_medians_over_a_groups_rows_then_its_seeds_then_groups() -> None:
    rows = [
        row("a", group=0, run_seed=0, ttft=0.001, overhead_ms=10),
        row("a", group=0, run_seed=0, ttft=0.003, overhead_ms=20, repeat=1),
        row("a", group=0, run_seed=1, ttft=0.004, overhead_ms=30),
        row("b", group=1, run_seed=0, ttft=0.009),
        row("c", group=2, run_seed=0, ttft=0.005, tokens=1),
    ]
    found = alone(*rows)
    ttft = median_interval([3.0, 9.0, 5.0])
    assert (found.ttft_ms.median, found.ttft_ms.low, found.ttft_ms.high) == pytest.approx(
        (5.0, ttft.low, ttft.high)
    )
    # Rows that cannot tell (no second token, a peer's steps) do not count.
    assert found.overhead_ms_per_step.median == pytest.approx((15 + 30) / 2)
    assert found.tpot_ms.median == pytest.approx(((999 + 997) / 2 / 9 + 996 / 9) / 4 + 991 / 9 / 2)


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
    found = alone(*rows)
    assert found.mean_acceptance_length == Ratio(60 / 30)
    assert found.acceptance_rate == Ratio(42 / 220)
    assert found.draft_efficiency == Ratio(0.0)
    assert found.target_calls == 30
    assert found.routes == {"spine": 30}
    assert found.overhead_percent == pytest.approx(40.0)
    assert found.tokens == 20


def test_a_group_is_drawn_with_all_its_rows() -> None:
    halves = [
        row("a", repeat=0, tally=tally(40, 10, 110, 31)),
        row("a", repeat=1, run_seed=1, tally=tally(20, 20, 110, 11)),
    ]
    found = alone(*halves).mean_acceptance_length
    assert found.value == 2.0
    assert found.low is None
    others = [row(f"b/{n}", group=n, tally=tally(60, 30, 110, 11)) for n in range(1, 6)]
    assert alone(*halves, *others).mean_acceptance_length == Ratio(2.0, 2.0, 2.0)


def test_shares_of_time_add_up_to_one() -> None:
    found = alone(row("a", tally=tally(40, 10, 110, 31)))
    assert found.time_share == pytest.approx(
        {"draft": 0.1, "target": 0.6, "verify": 0.1, "commit": 0.1, "learn": 0.1, "other": 0.0}
    )
    assert sum(found.time_share.values()) == pytest.approx(1.0)
    assert alone(row("a", tally=Tally(steps=3, committed=4))).time_share == {}


def test_acceptance_is_pooled_by_depth_source_and_rank() -> None:
    good = step(tree([-1, 0, 1, 0], sources=["root", "x", "x", "y"]), (1, 2))
    bad = step(tree([-1, 0], sources=["root", "y"]), ())
    found = alone(
        row("a", group=0, acceptance=acceptance_of([good])),
        row("b", group=1, acceptance=acceptance_of([bad])),
        row("c", group=2, acceptance=acceptance_of([bad, good])),
    )
    first, second = found.acceptance_by_depth
    assert (first.depth, first.offered, first.reached, first.rate.value) == (1, 4, 2, 0.5)
    assert (second.depth, second.offered, second.reached) == (2, 2, 2)
    # Groups that never drafted so deep say nothing.
    assert second.rate == Ratio(1.0)
    assert list(found.acceptance_by_source) == ["x", "y"]
    assert found.acceptance_by_source["x"] == SourceRate(4, 4, Ratio(1.0))
    assert found.acceptance_by_source["y"] == SourceRate(4, 0, Ratio(0.0))
    assert [(c.depth, c.rank, c.offered, c.accepted) for c in found.acceptance_by_rank] == [
        (1, 1, 4, 2),
        (1, 2, 2, 0),
        (2, 1, 2, 2),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_count_of_acceptance_adds_up_to_the_tallys(seed: int) -> None:
    rows, whole = [], Tally()
    for number in range(4):
        counted, steps = Tally(), random_steps(20, 10 * seed + number)
        for one in steps:
            counted.add(one)
        whole.merge(counted)
        rows.append(row(f"a/{number}", tally=counted, acceptance=acceptance_of(steps)))
    found = alone(*rows)
    assert found.acceptance_rate.value == whole.accepted / whole.drafted
    sources = found.acceptance_by_source
    assert {name: rate.drafted for name, rate in sources.items()} == whole.drafted_by_source
    assert {name: rate.accepted for name, rate in sources.items()} == whole.accepted_by_source
    depths = found.acceptance_by_depth
    assert {d.depth: d.offered for d in depths} == whole.offered_by_depth
    assert sum(d.reached for d in depths) == whole.accepted
    assert sum(rank.accepted for rank in found.acceptance_by_rank) == whole.accepted


def test_peak_memory_is_the_median_over_runs_that_know_it() -> None:
    rows = [row(str(i), group=i, peak_memory_mb=mb) for i, mb in enumerate([5.0, None, 7.0, 100.0])]
    assert alone(*rows).peak_memory_mb == 7.0
    assert alone(row()).peak_memory_mb is None


def test_equation_7() -> None:
    # Nine draft forwards at a thirtieth of the target each: 4.2 tokens in 1.3 target times.
    assert speedup(4.2, 1 / 30, 9) == pytest.approx(4.2 / 1.3)
    assert speedup(4.2, 1 / 30, 9, verification=1.7) == pytest.approx(2.1)


def test_speed_ups_are_predicted_from_the_phases() -> None:
    plain = row("a", tally=tally(10, 10, 110, 31))  # 6 s in 10 target calls: 0.6 s a call
    drafting = tally(30, 10, 110, 31)
    drafting.draft_calls = 50
    drafting.seconds.update({"target": 3})
    found = aggregate([row("a", tally=drafting)], Baselines([plain]))
    assert (found.draft_calls, found.draft_efficiency.value) == (50, 5.0)
    c = (1 / 50) / 0.6
    assert found.predicted_speedup == pytest.approx(3 / (1 + c * 5))
    assert found.predicted_speedup_with_verification == pytest.approx(3 / (0.9 / 0.6 + c * 5))
    unknown = alone(row("a", tally=drafting))
    assert unknown.predicted_speedup is None
    slow = tally(10, 10, 110, 31)
    slow.seconds.update({"target": 600})  # of another group
    again = aggregate([row("a", tally=drafting)], Baselines([plain, row("b", group=1, tally=slow)]))
    assert again.predicted_speedup == found.predicted_speedup


def test_a_prompt_is_identical_only_if_all_its_repeats_are() -> None:
    rows = [
        row("a", repeat=0, identical=True),
        row("a", repeat=1, identical=False),
        row("b", group=1, repeat=0, identical=True),
        row("c", group=2, identical=None),
    ]
    found = alone(*rows)
    assert (found.identical, found.compared, found.prompts) == (1, 2, 3)


def test_looping_groups_are_left_out_whole() -> None:
    rows = [
        row("a", group=0),
        row("b", group=0, looping=True),
        row("c", group=1),
    ]
    assert [r.id for r in without_looping(rows)] == ["c"]
    found = alone(*rows)
    assert (found.texts, found.looping_texts) == (3, 1)
    assert found.repeated_8grams.value == pytest.approx(1 / 3)


def test_a_loop_leaves_the_other_seeds_of_its_group_in() -> None:
    rows = [
        row("a", run_seed=0, repeat=0),
        row("a", run_seed=0, repeat=1, looping=True),
        row("a", run_seed=1),
    ]
    assert [r.run_seed for r in without_looping(rows)] == [1]


def reported(*rows: RunRow) -> MethodResult:
    return method_entry("x", rows, Baselines(rows), [], {})


def test_every_set_and_task_is_there_with_and_without_looping() -> None:
    found = reported(
        row("a", group=0, set="x", task="code", seconds=1.0),
        row("b", group=1, set="y", task="code", seconds=2.0, looping=True),
        row("c", group=2, set="y", task="chat", seconds=4.0),
    )
    assert set(found.by_set) == {"x", "y"}
    assert found.by_set["x"].tokens_per_second.median == 10.0
    assert found.by_set["y"].without_looping.prompts == 1
    assert set(found.by_task) == {"code", "chat"}
    assert found.by_task["code"].prompts == 2
    assert found.by_task["code"].without_looping.prompts == 1
    assert found.without_looping.prompts == 2
    assert found.without_looping.looping_texts == 0
    assert found.by_seed == {}


def test_every_seed_of_several_is_there() -> None:
    found = reported(
        row("a", run_seed=3, tokens=10),
        row("b", group=1, run_seed=3, tokens=10),
        row("a", run_seed=4, tokens=20),
    )
    assert found.prompts == 2
    assert {seed: part.tokens for seed, part in found.by_seed.items()} == {"3": 20, "4": 20}
    assert found.by_seed["4"].without_looping.prompts == 1


def test_no_rows_are_no_error() -> None:
    found = alone()
    assert found.prompts == 0
    assert found.tokens_per_second.median is None
    assert found.mean_acceptance_length.value is None
    assert found.overhead_percent is None
    assert found.acceptance_by_depth == ()
