"""Plain decoding: drafts nothing, so that every step yields one token.

The baseline of every speed-up, run through the same engine. It asks no source anything.
"""

from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Grower, Growth, Outcome, Policy
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True)
class Plain(Policy):
    """The root alone."""

    branching: ClassVar = False

    @property
    def budget(self) -> int:
        """Nothing is drafted."""
        return 0

    @property
    def sources(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def draws(self) -> frozenset[Draw]:
        """A root counts as chosen deterministically."""
        return frozenset({Draw.ONE_HOT})

    def start(self) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, outcome: Outcome) -> None:
        """There is nothing to learn."""

    def grow(self, growth: Growth, state: None) -> Grower:
        """Route: ``plain``."""
        yield from ()
        return TreeBuilder(growth.anchor).build("plain")


PART = Plain
