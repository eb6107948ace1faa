"""Plain decoding (method ``ar``): drafts nothing, so that every step yields one token.

The baseline of every speed-up, run through the same engine. It asks no source anything.
"""

from dataclasses import dataclass

from draftwood.protocols import Grower, Growth, Policy, Recipe
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Plain(Policy):
    """The root alone."""

    @property
    def branching(self) -> bool:
        """There is nothing but the root."""
        return False

    def grow(self, growth: Growth, state: None) -> Grower:
        """Route: ``plain``."""
        yield from ()
        return TreeBuilder(growth.anchor).build("plain")


PART = Plain
RECIPES = (
    Recipe(
        "ar",
        "plain decoding through the same engine",
        "-",
    ),
)
