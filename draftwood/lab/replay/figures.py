"""Figures of a replayed method: acceptance, work per step, and expected speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from draftwood.costs.curve import StepCosts
from draftwood.engine.stats import Tally

if TYPE_CHECKING:
    from draftwood.lab.replay.decoding import BatchStep, PromptRun, StepWork

_SEED = 0


@dataclass(frozen=True)
class BatchLoad:
    """Number of sequences decoded together, and cached tokens of each."""

    batch: int
    context: int


@dataclass(frozen=True)
class Speed:
    """Expected speed at a load.

    Attributes:
        load: batch size and context.
        tokens_per_second: of the whole batch.
        speedup: their ratio to plain decoding's.
        mean_acceptance_length: committed tokens per step of a sequence.
        drafted_per_step: drafted nodes per step of a sequence.
    """

    load: BatchLoad
    tokens_per_second: float
    speedup: float
    mean_acceptance_length: float
    drafted_per_step: float


@dataclass(frozen=True)
class Figures:
    """Figures of a method over prompts.

    Attributes:
        method: name and settings, as given.
        prompts: number of prompts.
        tokens: generated tokens.
        steps: target forwards.
        mean_acceptance_length: committed tokens per step.
        acceptance_rate: accepted per drafted token.
        drafted_per_step: drafted nodes per step.
        draft_efficiency: draft forwards per step.
        speeds: expected speed for each load.
        steps_per_second: speed of the replay itself, without the model.
        live_prompts: prompts that needed the model.
        live_steps_per_second: speed of the replay with the model.
    """

    method: str
    prompts: int
    tokens: int
    steps: int
    mean_acceptance_length: float
    acceptance_rate: float
    drafted_per_step: float
    draft_efficiency: float
    speeds: tuple[Speed, ...]
    steps_per_second: float
    live_prompts: int = 0
    live_steps_per_second: float = math.nan


def figures(
    method: str,
    runs: Sequence[PromptRun],
    loads: Iterable[BatchLoad] = (),
    costs: StepCosts | None = None,
    planned: Mapping[BatchLoad, Sequence[PromptRun]] | None = None,
    together: Sequence[Speed] = (),
) -> Figures:
    """Sum up the runs of a method; without costs, no speed is estimated.

    Args:
        method: name and settings, as given.
        runs: one run a prompt.
        loads: batch sizes and contexts.
        costs: step costs.
        planned: runs of a method that plans its trees for a load; for other loads, ``runs``.
        together: speeds of prompts that were decoded in batches (:func:`speed_together`).

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """
    runs = sorted(runs, key=lambda run: run.used_model)
    live = [run for run in runs if run.used_model]
    tally = Tally()
    for run in runs:
        tally.merge(run.tally)
    speeds = list(together)
    for load in () if costs is None else loads:
        own = (planned or {}).get(load)
        steps = [step for run in (runs if own is None else own) for step in run.steps]
        if costs is not None and steps:
            speeds.append(speed(steps, costs, load, alike=own is not None))
    return Figures(
        method=method,
        prompts=len(runs),
        tokens=sum(len(tokens) for run in runs for tokens in run.tokens),
        steps=tally.steps,
        mean_acceptance_length=tally.mean_acceptance_length,
        acceptance_rate=tally.acceptance_rate,
        drafted_per_step=tally.drafted / tally.steps if tally.steps else math.nan,
        draft_efficiency=tally.draft_efficiency,
        speeds=tuple(speeds),
        steps_per_second=_steps_per_second([run for run in runs if not run.used_model]),
        live_prompts=len(live),
        live_steps_per_second=_steps_per_second(live),
    )


def speed(
    steps: Sequence[StepWork], costs: StepCosts, load: BatchLoad, *, alike: bool = False
) -> Speed:
    """Expected speed of the steps, dealt into batches.

    Args:
        steps: at least one.
        costs: step costs of the target and of every drafter that has a model.
        load: batch size and context.
        alike: all steps of a batch are alike, as they were planned to be
            (:func:`draftwood.lab.replay.pricing.of_sequence`); otherwise they are random ones.

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """
    batch, context = load.batch, load.batch * load.context
    seconds, committed = 0.0, 0
    for group in _groups(len(steps), batch, alike=alike):
        members = [steps[i] for i in group]
        tokens = batch + sum(step.nodes for step in members)
        seconds += costs.step(tokens, context, batch, _levels(members))
        committed += sum(step.committed for step in members)
    found = committed / seconds
    plain = batch / costs.step(batch, context, batch)
    return Speed(
        load=load,
        tokens_per_second=found,
        speedup=found / plain,
        mean_acceptance_length=sum(step.committed for step in steps) / len(steps),
        drafted_per_step=sum(step.nodes for step in steps) / len(steps),
    )


def seconds_together(steps: Sequence[BatchStep], costs: StepCosts) -> float:
    """Expected seconds of prompts that were decoded in batches.

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """
    return sum(
        costs.step(step.batch + step.nodes, step.context, step.batch, step.levels) for step in steps
    )


def speed_together(
    steps: Sequence[BatchStep], plain: Sequence[BatchStep], costs: StepCosts, places: int
) -> Speed:
    """Expected speed of prompts that were decoded in batches.

    Args:
        steps: at least one.
        plain: those of plain decoding of the same prompts, in as many places.
        costs: step costs of the target and of every drafter that has a model.
        places: requests that are decoded together at most; fewer where none wait.

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """

    def rate(of: Sequence[BatchStep]) -> float:
        return sum(step.committed for step in of) / seconds_together(of, costs)

    sequences = sum(step.batch for step in steps)
    context = sum(step.context for step in plain) / sum(step.batch for step in plain)
    return Speed(
        load=BatchLoad(places, round(context)),
        tokens_per_second=rate(steps),
        speedup=rate(steps) / rate(plain),
        mean_acceptance_length=sum(step.committed for step in steps) / sequences,
        drafted_per_step=sum(step.nodes for step in steps) / sequences,
    )


def _groups(count: int, batch: int, *, alike: bool) -> list[list[int]]:
    """Groups of ``batch`` steps, in which all steps occur equally often.

    They are random, or one for each step that holds nothing else.
    """
    if alike or batch == 1:
        return [[i] * batch for i in range(count)]
    # Each step occurs ``batch`` times, so that the groups come out even.
    dealt = np.random.default_rng(_SEED).permutation(count).tolist() * batch
    return [dealt[i : i + batch] for i in range(0, len(dealt), batch)]


def _levels(members: Sequence[StepWork]) -> dict[str, list[int]]:
    """Nodes of each shared draft forward, by source."""
    sources = dict.fromkeys(source for step in members for source in step.levels)
    return {
        source: [sum(w) for w in zip_longest(*(m.levels[source] for m in members), fillvalue=0)]
        for source in sources
    }


def _steps_per_second(runs: Sequence[PromptRun]) -> float:
    seconds = sum(run.seconds for run in runs)
    return sum(len(run.steps) for run in runs) / seconds if seconds else math.nan
