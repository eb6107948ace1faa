"""Times an engine's steps and compares them with predicted step costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from draftwood.costs.curve import StepCosts
from draftwood.engine.stats import StepStats
from draftwood.methods import method
from draftwood.protocols import Host, Target

_TOKENS = 48
"""Tokens generated per request."""


@dataclass(frozen=True)
class TimedStep:
    """A step and its time.

    Attributes:
        tokens: tokens scored by the target.
        context: cached tokens of the whole batch.
        batch: number of requests.
        levels: nodes of each draft forward, summed over the batch.
        seconds: wall time of the step.
        target: seconds of the target's forward.
    """

    tokens: int
    context: int
    batch: int
    levels: tuple[int, ...]
    seconds: float
    target: float


@dataclass(frozen=True)
class Check:
    """Median measured and predicted seconds of a method's steps, and median ratio."""

    method: str
    batch: int
    steps: int
    measured: float
    predicted: float
    ratio: float


def run_steps(
    target: Target, host: Host, name: str, prompt: list[int], batch: int, seconds: float
) -> list[TimedStep]:
    """Run batches of requests for ``seconds``, at least one batch, and time their steps."""
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Finished, Request, Stepped

    engine = Engine(target, method(name), host=host)
    found: list[TimedStep] = []
    end = perf_counter() + seconds
    begun = False
    while not begun or perf_counter() < end:
        begun = True
        numbers = [engine.add(Request(prompt, _TOKENS)) for _ in range(batch)]
        cached = batch * len(prompt)
        timed = False  # the steps until all have begun cache prompts, the first one after it too
        while engine.busy and not (found and perf_counter() > end):
            start = perf_counter()
            events = engine.step()
            took = perf_counter() - start
            stats = [event.stats for event in events if isinstance(event, Stepped)]
            all_run = len(stats) == batch
            if not all_run and (timed or any(isinstance(event, Finished) for event in events)):
                break
            if timed:
                found.append(_timed(stats, cached, took))
            cached += sum(len(one.path) + 1 for one in stats)
            timed = all_run
        for number in numbers:
            engine.cancel(number)
    return found


def _timed(stats: Sequence[StepStats], cached: int, seconds: float) -> TimedStep:
    first, trees = stats[0], [one.tree for one in stats]
    levels = [
        sum(int((tree.depths == i).sum()) for tree in trees) for i in range(first.draft_calls)
    ]
    return TimedStep(
        tokens=sum(map(len, trees)),
        context=cached,
        batch=len(trees),
        levels=tuple(levels),
        seconds=seconds,
        target=first.times.target,
    )


def check(
    costs: StepCosts, name: str, batch: int, steps: Sequence[TimedStep], source: str
) -> Check:
    """Compare predicted with measured steps of a method; ``source``: whose levels these are."""
    predicted = [
        costs.step(s.tokens, s.context, s.batch, {source: s.levels} if s.levels else {})
        for s in steps
    ]
    measured = [s.seconds for s in steps]
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    return Check(name, batch, len(steps), median(measured), median(predicted), median(ratios))
