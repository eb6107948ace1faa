"""Host work of a step: CPU time of the engine's thread outside of the target's forward, by phase.

``engine_overhead.py`` prints it. The hand-over is apart: the ranking of the logits and their way to
the host, which takes a kernel's time and not Python's.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from draftwood.engine.engine import Engine
from draftwood.engine.phases import Phases
from draftwood.engine.request import Finished, Request, Stepped
from draftwood.runner.to_host import to_host_with

PHASES = ("draft", "submit", "rows", "verify", "commit", "learn")
"""Methods of :class:`Phases` that a step calls in turn."""

HAND_OVER, FORWARD, REST = "hand-over", "forward", "rest"

NEW_TOKENS = 200


class Laps:
    """Seconds of CPU time of this thread by name; an inner lap is not counted in the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Time what is inside."""
        begun = time.thread_time()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = time.thread_time() - begun
            own = whole - self._inner.pop()
            self._inner[-1] += whole
            self.seconds[name] = self.seconds.get(name, 0.0) + own

    def timed(self, name: str, called: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose calls are laps."""

        def within(*given: Any, **named: Any) -> Any:
            with self.lap(name):
                return called(*given, **named)

        return within


@contextmanager
def watched_phases(model: torch.nn.Module) -> Iterator[Laps]:
    """Laps of the phases of an engine's steps, of the model's forward and of the hand-over."""
    laps = Laps()
    with ExitStack() as stack:
        for name in PHASES:
            stack.enter_context(patch.object(Phases, name, laps.timed(name, getattr(Phases, name))))
        handed = laps.timed(HAND_OVER, to_host_with)
        stack.enter_context(patch("draftwood.runner.submitted.to_host_with", handed))
        within = ExitStack()

        def begin(*_: object) -> None:
            within.enter_context(laps.lap(FORWARD))

        stack.callback(model.register_forward_pre_hook(begin).remove)
        stack.callback(model.register_forward_hook(lambda *_: within.close()).remove)
        yield laps


def usual_size(drafted: Sequence[int]) -> int:
    """Drafted nodes of the usual step: only steps of that size are compared.

    ``auto`` chooses the size anew in each step.
    """
    return statistics.median_high(drafted)


def host_work(
    engine: Engine, model: torch.nn.Module, prompts: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Median milliseconds of a step of all prompts at once, by phase, and their sum.

    Args:
        engine: a new one.
        model: the engine's.
        prompts: token ids; all are decoded together, and a step counts if all of them draft.
    """
    rows: list[dict[str, float]] = []
    drafted: list[int] = []
    for prompt in prompts:
        engine.add(Request(prompt, max_new_tokens=NEW_TOKENS))
    with watched_phases(model) as laps:
        engine.step()
        while engine.busy:
            laps.seconds.clear()
            with laps.lap(REST):
                events = engine.step()
            nodes = [e.stats.tree.drafted for e in events if isinstance(e, Stepped)]
            ended = any(isinstance(event, Finished) for event in events)
            if len(nodes) == len(prompts) and not ended:
                rows.append(dict(laps.seconds))
                drafted.append(sum(nodes))
    usual = usual_size(drafted)
    rows = [row for row, nodes in zip(rows, drafted, strict=True) if nodes >= usual]
    phases = [*PHASES, REST, HAND_OVER]
    found = {name: statistics.median(row.get(name, 0.0) for row in rows) * 1e3 for name in phases}
    sums = [sum(row.get(name, 0.0) for name in (*PHASES, REST)) for row in rows]
    return {"drafted": usual, "steps": len(rows), "sum": statistics.median(sums) * 1e3, **found}
