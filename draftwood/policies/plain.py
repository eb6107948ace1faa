"""Plain decoding (method ``ar``): drafts nothing, so that every step yields one token.

The baseline of every speed-up, run through the same engine. It asks no source anything.
"""

from dataclasses import dataclass

from draftwood.protocols import Grower, Growth, Policy, Recipe
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Plain(Policy):
    """Drafts nothing."""

    @property
    def branching(self) -> bool:
        """False: the tree is the root alone."""
        return False

    def grow(self, growth: Growth, state: None) -> Grower:
        """The root alone. Route: ``plain``."""
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
