"""What a step took, for policies that learn from the time of whole steps.

Live that is the wall clock's. A replay has no such time; its host gives a clock that reads the
step's costs instead.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSize:
    """The size of a step without draft forwards.

    Attributes:
        tokens: scored by the target, roots included.
        context: cached tokens, summed over the batch.
        batch: sequences.
    """

    tokens: int
    context: int
    batch: int


@dataclass(frozen=True)
class ClockOf:
    """The key under which a host shares its clock."""


class Clock:
    """The wall clock."""

    def seconds(self, size: StepSize, measured: float) -> float:  # noqa: ARG002
        """Seconds that a step of this size took: those that were measured."""
        return measured
