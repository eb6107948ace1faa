"""What a method came to: acceptance, work, and expected speeds. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from draftwood.costs.curve import StepCosts
from draftwood.engine.stats import Tally

if TYPE_CHECKING:
    from draftwood.lab.replay.replayer import Played

    pass


from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from draftwood.lab.replay.replayer import StepFigures


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


@dataclass(frozen=True)
class Figures:
    """A method over prompts.

    Attributes:
        method: as it was spelt.
        prompts: how many.
        tokens: generated.
        steps: target calls.
        tau: committed tokens per step.
        acceptance_rate: accepted per drafted token.
        nodes: drafted a step.
        draft_calls: draft forwards a step.
        speeds: expected, one for each load.
        steps_per_second: of playing it here.
        live_prompts: for how many of the prompts the model was asked.
        live_steps_per_second: of these.
    """

    method: str
    prompts: int
    tokens: int
    steps: int
    tau: float
    acceptance_rate: float
    nodes: float
    draft_calls: float
    speeds: tuple[Speed, ...]
    steps_per_second: float
    live_prompts: int = 0
    live_steps_per_second: float = math.nan

    def to_json(self) -> dict[str, object]:
        """As JSON can hold it: what is unknown is null."""
        found = asdict(self)
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in found.items()}


def figures(
    method: str,
    played: Sequence[Played],
    live: Sequence[Played],
    loads: Iterable[Load] = (),
    costs: StepCosts | None = None,
) -> Figures:
    """Sums up what was played without a model, and what was played with one.

    Raises:
        DraftwoodError: the costs of a drafter are not known.
    """
    every = [*played, *live]
    tally = Tally()
    for one in every:
        tally.merge(one.tally)
    steps = list(chain.from_iterable(one.steps for one in every))
    pass

    speeds = () if costs is None or not steps else tuple(speed(steps, costs, at) for at in loads)
    return Figures(
        method=method,
        prompts=len(every),
        tokens=sum(len(tokens) for one in every for tokens in one.tokens),
        steps=tally.steps,
        tau=tally.mean_acceptance_length,
        acceptance_rate=tally.acceptance_rate,
        nodes=tally.drafted / tally.steps if tally.steps else math.nan,
        draft_calls=tally.draft_efficiency,
        speeds=speeds,
        steps_per_second=_rate(played),
        live_prompts=len(live),
        live_steps_per_second=_rate(live),
    )


def _rate(played: Sequence[Played]) -> float:
    seconds = sum(one.seconds for one in played)
    return sum(len(one.steps) for one in played) / seconds if seconds else math.nan
