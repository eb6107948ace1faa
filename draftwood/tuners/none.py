"""Learns nothing: for policies whose trees do not depend on what steps cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftwood.protocols import Built, Host, Outcome
from draftwood.protocols.bids import FREE, Bid, Price
from draftwood.protocols.tuning import Foretold, Load, Spent


@dataclass(frozen=True)
class Untuned:
    """Both its own settings, of which there are none, and the tuner."""

    def build(
        self,
        host: Host,  # noqa: ARG002
        drafters: Mapping[str, Built],  # noqa: ARG002
    ) -> "Untuned":
        """Itself: it has no state."""
        return self

    def begin(self, loads: Sequence[Load], *, queued: bool) -> list[None]:  # noqa: ARG002
        """Nothing is expected."""
        return [None] * len(loads)

    def price(self, bids: Sequence[Bid]) -> Price:  # noqa: ARG002
        """Every candidate is worth its cost."""
        return FREE

    def observe(
        self,
        bids: Sequence[Bid | None],  # noqa: ARG002
        outcomes: Sequence[Outcome],
        spent: Spent,  # noqa: ARG002
    ) -> list[Foretold | None]:
        """Nothing was foretold."""
        return [None] * len(outcomes)


PART = Untuned
