"""From a run's turns to one row."""

from dataclasses import replace

import pytest

from draftwood.engine.stats import StepStats, Tally
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.predictions import predictions_of
from draftwood.lab.bench.rows import row_of
from draftwood.protocols import StepTimes
from draftwood.tree import tree_of
from tests.factories.bench_rows import cut, predicting, random_steps, run, turn


def tally() -> Tally:
    made = Tally()
    made.add(StepStats(tree_of([1, 2], [-1, 0], "context"), (1,), 2, StepTimes(1, 2, 3, 4, 5), 1))
    return made


def test_turns_are_added_up() -> None:
    made = row_of(run(turn((1, 2, 3), tally=tally()), cut(turn((4, 5)))), identical=True)
    assert (made.turns, made.tokens, made.prompt_tokens) == (2, 5, 2)
    assert (made.seconds, made.group_seconds, made.ttft) == (5.0, 6.0, 0.5)
    assert made.tpot == pytest.approx((2.0 + 2.0) / 3)
    assert made.steps == 1
    assert made.overhead_ms_per_step == 500.0
    assert made.truncated
    assert made.mean_acceptance_length == 2.0
    assert made.phases == pytest.approx(
        {"draft": 1, "target": 2, "verify": 3, "commit": 4, "learn": 5, "other": 0.2}
    )


def test_what_is_unknown_is_none() -> None:
    made = row_of(run(replace(turn((1,)), overhead=(), other=0.0)), identical=None)
    assert made.tpot is None
    assert made.phases == {}
    assert (made.mean_acceptance_length, made.overhead_ms_per_step) == (None, None)
    assert made.identical is None


def test_acceptance_is_added_up_over_turns() -> None:
    steps = random_steps(20, seed=0)
    parts = [turn((1,), acceptance=acceptance_of(part)) for part in (steps[:5], steps[5:])]
    assert row_of(run(*parts), None).acceptance == acceptance_of(steps)


def test_predictions_are_added_up_over_turns() -> None:
    steps = [predicting(1.5, k, ("x", 0.5, True), number=199 + k) for k in range(4)]
    parts = [turn((1,), forecasts=predictions_of(part)) for part in (steps[:3], steps[3:])]
    found = row_of(run(*parts), None).forecasts
    assert found == predictions_of(steps)
    assert (found.all_steps.steps, found.late_steps.steps) == (4, 2)


def test_a_row_knows_both_its_seeds_and_its_peak() -> None:
    answered = replace(run(turn((1,)), run_seed=7, peak_memory_mb=12.5), seed=9)
    found = row_of(answered, None)
    assert (found.run_seed, found.seed, found.peak_memory_mb) == (7, 9, 12.5)
    assert row_of(run(turn((1,))), None).peak_memory_mb is None


def test_one_looping_answer_makes_the_row_loop() -> None:
    loop = tuple([7, 8, 9] * 40)
    plain = tuple(range(120))
    assert row_of(run(turn(plain), turn(loop)), None).looping
    assert not row_of(run(turn(plain), turn(plain)), None).looping
