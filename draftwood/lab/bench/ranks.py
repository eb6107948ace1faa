"""How often the drafter's first, second, third... choice is the target's token.

Source: Sequoia (Chen et al. 2024), section 3.1: the acceptance probability of a child depends on
its rank alone, so one vector, measured once for a pair of models, decides the best static tree.
Runs an engine whose trees are one level of the drafter's best tokens; knows no files and no flags.
"""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from draftwood.costs.fit import fit
from draftwood.costs.measure import Grid, measure_target
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped, checked
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.protocols import Target

_SECONDS = 2.0
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Ranks:
    """What was counted.

    Attributes:
        accepted: steps in which the child of each rank was the accepted one, best rank first.
        steps: steps in all.
        draft_seconds: median wall-clock of one draft forward, with the tree building around it.
    """

    accepted: tuple[int, ...]
    steps: int
    draft_seconds: float

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Probability by rank that the child is the accepted one."""
        return tuple(count / self.steps for count in self.accepted)


def count_ranks(engine: Engine, requests: Iterable[Request], ranks: int) -> Ranks:
    """Decode the requests, one after another, and count.

    Args:
        engine: runs a method that drafts the ``ranks`` best children of the root, in this order,
            and nothing below.
        requests: what to decode; temperature decides what the vector is good for.
        ranks: length of the vector.

    Raises:
        DraftwoodError: no step was drafted.
    """
    accepted, seconds, steps = [0] * ranks, [], 0
    for step in _steps(engine, requests):
        if step.tree.drafted:
            steps += 1
            if step.draft_calls:
                seconds.append(step.times.draft / step.draft_calls)
            if step.path:
                accepted[step.path[0] - 1] += 1
    if not steps:
        raise DraftwoodError("no step was drafted: give longer answers or other prompts")
    return Ranks(tuple(accepted), steps, statistics.median(seconds) if seconds else 0.0)


def _steps(engine: Engine, requests: Iterable[Request]) -> Iterator[StepStats]:
    for request in requests:
        yield from (e.stats for e in checked(engine.stream([request])) if isinstance(e, Stepped))


def target_seconds(target: Target, nodes: int, context: int) -> list[float]:
    """Seconds of one target forward over the root and 0 to ``nodes`` drafted nodes.

    Measured at a few sizes, in between linear; ``context`` is the cached length in tokens.
    """
    sizes = (*(size for size in _SIZES if size <= nodes), nodes + 1)
    curve = fit(measure_target(target, Grid(sizes, (context,), seconds=_SECONDS)))
    found: list[float] = curve.table(nodes + 1, context)[1:].tolist()
    return found
