"""Prompt lookup decoding: the copied continuation, verified as one chain.

Source: GOOSE's baseline "PLD" (Saxena, 2023). It knows its one source by name only.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from draftwood.errors import DraftwoodError
from draftwood.protocols import Continuation, Continue, Grower, Growth, Outcome, Policy
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True)
class Chain(Policy):
    """Drafts the preferred continuation, or nothing.

    Raises:
        DraftwoodError: a negative budget.
    """

    budget: int = field(
        default=20,
        metadata={"help": "longest chain to draft, in tokens", "search": (5, 10, 20, 40)},
    )
    chain: str = field(default="context", metadata={"help": "name of the source that copies"})

    branching: ClassVar = False

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise DraftwoodError(f"budget is {self.budget}; give 0 or more nodes")

    @property
    def sources(self) -> tuple[str, ...]:
        """The copying source."""
        return (self.chain,)

    @property
    def draws(self) -> frozenset[Draw]:
        """Every node is copied."""
        return frozenset({Draw.ONE_HOT})

    def start(self) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, outcome: Outcome) -> None:
        """There is nothing to learn."""

    def grow(self, growth: Growth, state: None) -> Grower:
        """Routes: ``chain``, or ``plain`` where nothing matches."""
        builder = TreeBuilder(growth.anchor)
        length = min(self.budget, growth.budget, growth.room)
        if length > 0:
            offers: tuple[Continuation, ...] = yield Continue(self.chain)
            if offers:
                builder.add_chain(offers[0].tokens[:length], self.chain)
        return builder.build("chain" if builder.drafted else "plain")


PART = Chain
