"""What a tuner is: it learns from an engine's steps, for policies that size their trees by it.

Nothing here computes anything.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from draftwood.bids import Bid, Outlook
from draftwood.hosts import Built, Host
from draftwood.protocols import Outcome


class Tuner(Protocol):
    """Learns from an engine's steps how often candidates are taken and what a step costs."""

    def begin(self, contexts: Sequence[int]) -> None:
        """A step begins, of requests with so many cached tokens each."""
        ...

    def outlook(self, temperature: float) -> Outlook | None:
        """For a request of the step; None if nothing is learnt."""
        ...

    def price(self, bids: Sequence[Bid]) -> float:
        """The answer to all bids of the step."""
        ...

    def observe(
        self,
        bids: Sequence[Bid | None],
        outcomes: Sequence[Outcome],
        seconds: float,
        target_seconds: float,
    ) -> list[float]:
        """The step is over and took so long, the target's forward in it so much of that.

        Returns what was expected to be committed, by request (NaN where nothing was foretold).
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
