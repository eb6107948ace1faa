"""A copied continuation, verified as one chain (methods ``pld``, ``sam``).

Sources: GOOSE's baseline "PLD" (Saxena, 2023), which copies from the context match; SAM-Decoding
(Hu et al., 2025), of which ``sam`` is the part that drafts from a request's own text. The paper's
automaton of a corpus and its other drafter for short matches are left out: they are sources of
their own here.
"""

from dataclasses import dataclass

from draftwood.policies._frontier import lay_copied
from draftwood.protocols import Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Chain(Policy):
    """Drafts the preferred continuation, or nothing.

    Raises:
        DraftwoodError: a negative budget.
    """

    budget: int = setting(20, "longest chain to draft, in tokens", search=(5, 10, 20, 40), least=0)
    chain: str = setting("context", "name of the source that copies", source="chains")

    @property
    def branching(self) -> bool:
        """False: a chain never branches."""
        return False

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``chain``, or ``plain`` where nothing matches."""
        builder = TreeBuilder(growth.anchor)
        most = min(self.budget, growth.budget, growth.room)
        yield from lay_copied(builder, self.chain, most)
        return builder.build("chain" if builder.drafted else "plain")


PART = Chain
RECIPES = (
    Recipe(
        "pld",
        "a chain copied from the context",
        "Prompt Lookup Decoding, as GOOSE defines it",
        drafters={"context": "context"},
    ),
    Recipe(
        "sam",
        "a chain copied by the longest suffix match",
        "SAM-Decoding (Hu et al. 2025), without its corpus",
        drafters={"context": "suffix"},
    ),
)
