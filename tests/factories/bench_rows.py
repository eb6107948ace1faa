"""Runs and rows made by hand, so that figures can be checked by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftwood.engine.request import Completion
from draftwood.engine.stats import StepStats, Tally
from draftwood.lab.bench.acceptance import AcceptanceCounts
from draftwood.lab.bench.contexts import TurnContext
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.measure import Turn
from draftwood.lab.bench.predictions import Predictions
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.lab.loops import Repeats, pooled
from draftwood.protocols import Labelled, Prediction, StepTimes
from draftwood.tree import TokenTree, TreeBuilder


def row(
    id: str = "a/0",
    *,
    group: int = 0,
    repeat: int = 0,
    run_seed: int = 0,
    tokens: int = 10,
    seconds: float = 1.0,
    ttft: float = 0.1,
    tally: Tally | None = None,
    acceptance: AcceptanceCounts | None = None,
    forecasts: Predictions | None = None,
    overhead_ms: float | None = None,
    peak_memory_mb: float | None = None,
    identical: bool | None = None,
    looping: bool = False,
    set: str = "a",
    task: str = "test",
) -> RunRow:
    made = RunRow(
        id=id,
        set=set,
        task=task,
        repeat=repeat,
        group=group,
        run_seed=run_seed,
        seed=run_seed,
        turns=1,
        prompt_tokens=5,
        truncated=False,
        tokens=tokens,
        seconds=seconds,
        group_seconds=seconds,
        ttft=ttft,
        tpot=(seconds - ttft) / (tokens - 1) if tokens > 1 else None,
        **counted(tally or Tally()),
        overhead_ms_per_step=overhead_ms,
        finish_reasons=("length",),
        looping=looping,
        repeated_8grams=0,
        total_8grams=0,
        peak_memory_mb=peak_memory_mb,
        other_processes=None,
        identical=identical,
        acceptance=acceptance or AcceptanceCounts(),
        forecasts=forecasts or Predictions(),
    )
    return repeating(made, Repeats(10 if looping else 0, 10))


def counted(tally: Tally) -> dict[str, Any]:
    """The fields of a row that sum up its steps."""
    return {
        "steps": tally.steps,
        "committed": tally.committed,
        "drafted": tally.drafted,
        "draft_calls": tally.draft_calls,
        "accepted": tally.accepted,
        "mean_acceptance_length": tally.mean_acceptance_length if tally.steps else None,
        "routes": tally.routes,
        "kinds": tally.kinds,
        "phases": {**tally.seconds, "other": 0.0} if tally.seconds else {},
    }


def repeating(row: RunRow, *texts: Repeats) -> RunRow:
    """The row with answers that repeat themselves so much."""
    whole = pooled(texts)
    return replace(
        row,
        repeats=texts,
        looping=any(each.loops for each in texts),
        repeated_8grams=whole.repeated,
        total_8grams=whole.total,
    )


def turn(
    tokens: tuple[int, ...],
    context: tuple[int, ...] = (1, 2),
    tally: Tally | None = None,
    acceptance: AcceptanceCounts | None = None,
    forecasts: Predictions | None = None,
) -> Turn:
    completion = Completion(tokens, "", "length", tally or Tally(), len(context), 0.5, 2.5)
    return Turn(
        TurnContext(context),
        completion,
        overhead=(0.25, 0.75),
        other=0.1,
        group_seconds=3.0,
        acceptance=acceptance or AcceptanceCounts(),
        forecasts=forecasts or Predictions(),
    )


def run(
    *turns: Turn,
    id: str = "a/0",
    method: str = "ar",
    run_seed: int = 0,
    repeat: int = 0,
    peak_memory_mb: float | None = None,
) -> Run:
    prompt = Prompt(id, "test", "a", ("x",) * len(turns))
    return Run(
        method=method,
        prompt=prompt,
        run_seed=run_seed,
        seed=run_seed,
        repeat=repeat,
        group=0,
        turns=turns,
        peak_memory_mb=peak_memory_mb,
    )


def cut(one: Turn) -> Turn:
    return replace(one, context=TurnContext(one.context.ids, cut=True))


def tree(
    parents: Sequence[int],
    tokens: Sequence[int] | None = None,
    sources: Sequence[str] | None = None,
    route: str = "",
) -> TokenTree:
    """A tree whose node ``i`` has token ``100 + i`` and source ``"s"``, unless given."""
    builder = TreeBuilder(100 if tokens is None else tokens[0])
    for i, parent in enumerate(parents[1:], start=1):
        token = 100 + i if tokens is None else tokens[i]
        assert builder.add(parent, token, "s" if sources is None else sources[i]) == i
    return builder.build(route)


def step(tree: TokenTree, path: Sequence[int], committed: int | None = None) -> StepStats:
    return StepStats(
        tree, tuple(path), len(path) + 1 if committed is None else committed, StepTimes(), 1
    )


def predicting(
    expected: float, accepted: int, *candidates: tuple[str, float, bool], number: int = 1
) -> StepStats:
    """A step that accepted so many nodes; candidates: source, probability, whether accepted."""
    chain = tree([-1, *range(accepted)])
    labelled = Labelled(
        [source for source, _, _ in candidates],
        [probability for _, probability, _ in candidates],
        [taken for _, _, taken in candidates],
    )
    prediction = Prediction(number, expected, labelled)
    return replace(step(chain, range(1, accepted + 1)), prediction=prediction)


def random_steps(count: int, seed: int) -> list[StepStats]:
    """Trees of up to 14 nodes from three sources, each with a random path from the root."""
    chance = np.random.default_rng(seed)
    found: list[StepStats] = []
    for _ in range(count):
        size = int(chance.integers(1, 15))
        parents = [-1, *(int(chance.integers(0, i)) for i in range(1, size))]
        sources = ["root", *(str(chance.choice(["x", "y", "z"])) for _ in range(1, size))]
        grown = tree(parents, sources=sources)
        found.append(step(grown, grown.path(int(chance.integers(0, size)))))
    return found
