"""Counts acceptance by rank: how often the drafter's n-th choice is the target's token.

Source: Sequoia (Chen et al. 2024), section 3.1: the acceptance probability of a child depends on
its rank alone, so one vector per pair of models decides the best static tree. The engine's trees
are one level of the drafter's best tokens.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from draftwood.costs.fit import fit
from draftwood.costs.measure import Grid, measure_target
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped, checked
from draftwood.errors import DraftwoodError
from draftwood.protocols import Target

_SECONDS = 2.0
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Ranks:
    """Acceptance counts by rank.

    Attributes:
        accepted: steps in which the child of each rank was accepted, best rank first.
        steps: number of steps.
        draft_seconds: median wall-clock seconds of a draft forward, tree building included.
    """

    accepted: tuple[int, ...]
    steps: int
    draft_seconds: float

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Acceptance probability by rank."""
        return tuple(count / self.steps for count in self.accepted)


def count_ranks(engine: Engine, requests: Iterable[Request], ranks: int) -> Ranks:
    """Decode the requests one after another and count accepted ranks.

    Args:
        engine: runs a method that drafts only the ``ranks`` best children of the root, in order.
        requests: requests; the counts hold for their temperature.
        ranks: number of ranks.

    Raises:
        DraftwoodError: no step was drafted.
    """
    accepted, seconds, steps = [0] * ranks, [], 0
    events = (event for request in requests for event in checked(engine.stream([request])))
    for step in (event.stats for event in events if isinstance(event, Stepped)):
        if step.tree.drafted:
            steps += 1
            if step.draft_calls:
                seconds.append(step.times.draft / step.draft_calls)
            if step.path:
                accepted[step.path[0] - 1] += 1
    if not steps:
        raise DraftwoodError("no step was drafted: give longer answers or other prompts")
    return Ranks(tuple(accepted), steps, statistics.median(seconds) if seconds else 0.0)


def target_seconds(target: Target, nodes: int, context: int) -> list[float]:
    """Seconds of a target forward with 0 to ``nodes`` drafted nodes.

    Measured at a few sizes and interpolated; ``context`` is the number of cached tokens.
    """
    sizes = (*(size for size in _SIZES if size <= nodes), nodes + 1)
    curve = fit(measure_target(target, Grid(sizes, (context,), seconds=_SECONDS)))
    return [curve.seconds(size, context) for size in range(1, nodes + 2)]
