"""Step costs that are given and do not change: what a step took means nothing."""

from collections.abc import Hashable
from typing import Any

from draftwood.costs.clock import Clock, ClockOf, StepSize
from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf


class FixedCosts(LiveCosts):
    """Step costs that do not change."""

    def observe(self, *step: float) -> None:
        """Ignore the step."""

    def searched(self, *step: object) -> None:
        """Ignore the step."""

    def compare(self, *step: object) -> None:
        """Ignore the step."""


class CostClock(Clock):
    """A clock that reads step costs.

    Args:
        costs: of a step.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs

    def seconds(self, size: StepSize, measured: float) -> float:  # noqa: ARG002
        """Seconds that a step of this size costs; what was measured means nothing."""
        return self._costs.step(size.tokens, size.context, size.batch)


def priced(key: Hashable, costs: StepCosts) -> Any:
    """What a host shares under a key that asks for costs or a clock; None under others."""
    if isinstance(key, CostsOf):
        return FixedCosts(costs)
    return CostClock(costs) if isinstance(key, ClockOf) else None
