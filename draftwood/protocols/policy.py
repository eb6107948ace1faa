"""The policy: arranges candidates into a tree, one sequence at a time.

Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from draftwood.protocols.bids import Bid, Outlook, Price
from draftwood.protocols.drafter import Candidates, Continuation, Continue, DraftNoise, Expand
from draftwood.protocols.step import Outcome
from draftwood.tree import Draw, TokenTree

if TYPE_CHECKING:
    pass


Query: TypeAlias = Continue | Expand | Bid
Answer: TypeAlias = tuple[Continuation, ...] | Candidates | Price


@dataclass(frozen=True)
class Growth:
    """What a policy may know when it grows a tree.

    Attributes:
        anchor: the root's token.
        room: deepest useful node: drafted tokens deeper than this could never be committed,
            because the request or the model's context ends before.
        budget: most nodes to draft, root excluded.
        temperature: the request's; at 0 a draft is best not sampled.
        noise: for the queries of a policy that samples.
        outlook: what to expect of this step, if the engine learns it.
    """

    anchor: int
    room: int
    budget: int
    temperature: float = 0.0
    noise: DraftNoise | None = None
    outlook: Outlook | None = None


Grower: TypeAlias = Generator[Query, Any, TokenTree]
"""A running policy: yields queries, is sent the matching answers, returns the tree."""


class Policy(Protocol):
    """Shapes the tree of ONE sequence; pure: no model, no hidden state, no global randomness.

    A frozen dataclass whose fields are command-line flags. ``budget`` is one of them.
    """

    @property
    def budget(self) -> int:
        """Most nodes drafted in a step, root excluded."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the drafters it queries, the quick ones first: in a batch the others wait."""
        ...

    @property
    def draws(self) -> frozenset[Draw]:
        """How the nodes it keeps were drawn; nothing is selected after drawing."""
        ...

    @property
    def branching(self) -> bool:
        """Whether a node may have several children."""
        ...

    def start(self) -> Any:
        """The state of a request that begins (immutable; kept by the engine)."""
        ...

    def grow(self, growth: Growth, state: Any) -> Grower:
        """Grow one tree."""
        ...

    def learn(self, state: Any, outcome: Outcome) -> Any:
        """The state after a step."""
        ...
