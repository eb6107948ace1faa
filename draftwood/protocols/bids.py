"""What a policy that sizes its tree by its worth says to the engine, and what it is told.

Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.policies.auto.features import Codes
    from draftwood.policies.auto.pool import Pool


class Chances(Protocol):
    """Tells how likely candidates are."""

    def chance(self, codes: Codes) -> float:
        """Of a candidate with these codes, if its parent is taken."""
        ...


class Price(NamedTuple):
    """What a candidate must be worth in a step, the same for all its requests.

    Trees of a batch are padded to the largest one, so that a node costs next to nothing in all
    trees up to that size, and beyond it what a larger forward costs. Hence two numbers.

    Attributes:
        least: what a candidate must be worth to be verified: the chance that its path is accepted,
            times what its request's tokens are worth (:attr:`Outlook.worth`).
        most: nodes of each tree.
    """

    least: float
    most: int


FREE = Price(0.0, 1 << 30)
"""Every candidate is worth its cost."""

NOTHING_PAYS = Price(2.0, 0)
"""None is."""


@dataclass(frozen=True, eq=False)
class Bid:
    """A policy's query: which of its candidates are worth their cost in this step?

    Answered with a :class:`Price`.

    Attributes:
        pool: the candidates.
        limit: most of them that the policy would take.
        levels: nodes of each draft forward that was spent on them.
        worth: of a token of this request (:attr:`Outlook.worth`).
    """

    pool: Pool
    limit: int
    levels: tuple[int, ...] = ()
    worth: float = 1.0

    @cached_property
    def values(self) -> list[float]:
        """What the likeliest candidates are worth, as many as would be taken, best first."""
        likeliest = sorted(self.pool.path[1:], reverse=True)[: self.limit]
        return [self.worth * chance for chance in likeliest]

    def tree(self, price: Price, route: str) -> TokenTree:
        """What is verified if this is the answer."""
        return self.pool.admitted(price.least / self.worth, min(price.most, self.limit), route)

    def expected(self, price: Price) -> float:
        """Tokens that the step is expected to commit if this is the answer."""
        taken = self.pool.chosen(price.least / self.worth, min(price.most, self.limit))
        return 1.0 + sum(map(self.pool.path.__getitem__, taken))


class Outlook(Chances, Protocol):
    """What the steps so far say of the next one."""

    @property
    def worth(self) -> float:
        """What a token of this request is worth, over a token of the usual one of its batch."""
        ...

    @property
    def floor(self) -> float:
        """Path chance below which a candidate is not worth looking at; above 1 none is."""
        ...

    @property
    def price(self) -> float:
        """Path chance of late from which on a candidate was worth its cost."""
        ...

    @property
    def coverage(self) -> float:
        """Chance that a neural drafter, asked below a node, adds a token that is accepted, given
        that none of the others' is right."""
        ...

    @property
    def catch_up(self) -> float:
        """What the first draft forward of a step costs besides, likewise: the neural drafter reads
        what was committed since it last drafted. Spread over the steps that the request has left.
        """
        ...

    def level(self, width: int) -> float:
        """What a draft forward over ``width`` nodes costs, in tokens generated meanwhile."""
        ...
