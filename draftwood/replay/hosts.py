"""Where drafters are built for a replay: without models, or beside them, with costs as given.

Knows nothing of recordings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.errors import DraftwoodError
from draftwood.hosts import Built, DraftModel, Head, Host
from draftwood.protocols import TargetInfo


class GivenCosts(LiveCosts):
    """Costs that stay as they are: what a step takes without its models says nothing of them."""

    def observe(self, *step: float) -> None:
        """Nothing is learnt."""

    def grown(self, *step: float) -> None:
        """Nothing either."""


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.hosts.Host` that has the target's facts and no model."""

    info: TargetInfo

    def model(self, name: Any) -> DraftModel:
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no model {name!r} here")

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no head {name!r} here")

    def costs(self, drafters: Mapping[str, Built]) -> LiveCosts:  # noqa: ARG002
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(
            "this method weighs nodes by what they cost, and nothing is timed here: give the costs "
            "with --costs FILE, or --gpu and --shape"
        )


@dataclass(frozen=True)
class PricedHost:
    """Another host, and costs that are given instead of being measured there."""

    host: Host
    given: StepCosts

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        return self.host.info

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.hosts.Host.model`."""
        return self.host.model(name)

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """See :meth:`draftwood.hosts.Host.head`."""
        return self.host.head(name)

    def costs(self, drafters: Mapping[str, Built]) -> LiveCosts:  # noqa: ARG002
        """Those given, whatever a step takes here."""
        return GivenCosts(self.given)
