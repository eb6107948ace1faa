"""What a tuner is: it learns from an engine's steps, for policies that size their trees by it.

Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from draftwood.protocols.bids import Bid, Outlook, Price
from draftwood.protocols.drafter import Built, Host
from draftwood.protocols.step import Outcome

if TYPE_CHECKING:
    from draftwood.policies.auto.hindsight import Judged


@dataclass(frozen=True, eq=False)
class Foretold:
    """What was foretold of a request's step, and what came of it.

    Attributes:
        step: number of the step among those of the tuner, from 1: how much it had seen.
        tokens: that the step was expected to commit, before any cut.
        judged: the candidates, drafted or not, that the committed tokens show to be right or wrong.
    """

    step: int
    tokens: float
    judged: Judged


class Load(NamedTuple):
    """A request as a step finds it.

    Attributes:
        cached: tokens before the root.
        left: tokens that it may still generate.
        pace: tokens a step of late.
        temperature: of its sampling; 0: greedy.
        backlog: tokens that a drafter's model must read before it drafts.
    """

    cached: int
    left: int
    pace: float
    temperature: float
    backlog: int = 0


class Spent(NamedTuple):
    """Seconds of a step of the whole batch, in the order in which they passed.

    Attributes:
        growing: its trees, what drafters took included.
        target: the target's forward.
        after: all that followed.
    """

    growing: float
    target: float
    after: float


class Tuner(Protocol):
    """Learns from an engine's steps how often candidates are taken and what a step costs."""

    def begin(self, loads: Sequence[Load], *, queued: bool) -> Sequence[Outlook | None]:
        """A step of these requests begins; ``queued``: others wait for them to end.

        Returns what each may expect of it; None where nothing is learnt.
        """
        ...

    def price(self, bids: Sequence[Bid]) -> Price:
        """The answer to all bids of the step."""
        ...

    def observe(
        self,
        bids: Sequence[Bid | None],
        outcomes: Sequence[Outcome],
        spent: Spent,
    ) -> list[Foretold | None]:
        """The step is over.

        Returns what was foretold, by request; None where nothing was.
        """
        ...


class TunerSpec(Protocol):
    """The frozen settings of a tuner; its fields are command-line flags."""

    def build(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:
        """A fresh tuner for an engine with these drafters, by source name.

        Raises:
            DraftwoodError: a file it starts from cannot be used.
        """
        ...
