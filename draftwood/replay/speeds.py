"""Expected tokens per second of recorded steps, at any load, by the costs of a step.

A batch is made of steps that were not taken together: they are dealt out at random, but always in
the same way. Trees of a batch are padded to the largest, levels of a drafter are shared. Knows
nothing of where steps and costs come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from draftwood.costs.curve import StepCosts

if TYPE_CHECKING:
    from draftwood.replay.playing import StepFigures

_SEED = 0


@dataclass(frozen=True)
class Load:
    """Sequences decoded together, and cached tokens of each."""

    batch: int
    context: int


@dataclass(frozen=True)
class Speed:
    """Expected at a load: tokens per second of the whole batch, over those of plain decoding."""

    load: Load
    tokens_per_second: float
    speedup: float


def speed(steps: Sequence[StepFigures], costs: StepCosts, load: Load) -> Speed:
    """What the steps would come to.

    Args:
        steps: at least one.
        costs: of a step, with those of every drafter that has a model.
        load: at which.

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """
    batch, context = load.batch, load.batch * load.context
    seconds, committed = 0.0, 0
    for group in _dealt(len(steps), batch):
        members = [steps[i] for i in group]
        tokens = batch * (1 + max(step.nodes for step in members))
        seconds += costs.step(tokens, context, batch, _levels(members))
        committed += sum(step.committed for step in members)
    found = committed / seconds
    plain = batch / costs.step(batch, context, batch)
    return Speed(load, found, found / plain)


def _dealt(count: int, batch: int) -> list[list[int]]:
    """Groups of steps in which every step occurs as often as any other."""
    if batch == 1:
        return [[i] for i in range(count)]
    order = np.random.default_rng(_SEED).permutation(count).tolist()
    # Each as often as there are places in a batch, so that the groups come out even.
    dealt = order * batch
    return [dealt[i : i + batch] for i in range(0, len(dealt), batch)]


def _levels(members: Sequence[StepFigures]) -> dict[str, list[int]]:
    sources = dict.fromkeys(source for step in members for source in step.levels)
    return {
        source: [sum(w) for w in zip_longest(*(m.levels[source] for m in members), fillvalue=0)]
        for source in sources
    }
