"""Hosts without a model, or with given step costs."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.errors import DraftwoodError
from draftwood.protocols import DraftHead, DraftModel, Host, Target, TargetInfo

T = TypeVar("T")


class FixedCosts(LiveCosts):
    """Step costs that do not change: without a model, the time of a step means nothing."""

    def observe(self, *step: float) -> None:
        """Ignore the step."""

    def searched(self, *step: float) -> None:
        """Ignore the step."""


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.protocols.Host` with the target's facts, but without models."""

    info: TargetInfo

    def model(self, name: Any) -> DraftModel:
        """Not available.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no model {name!r} here")

    def head(self, name: Any) -> tuple[DraftHead, DraftModel]:
        """Not available.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no head {name!r} here")

    @property
    def target(self) -> Target:
        """Not available.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("there is no target here: nothing can be measured")

    def identity(self, name: Any) -> str:  # noqa: ARG002
        """Empty: no costs are stored."""
        return ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make the object; step costs cannot be measured.

        Raises:
            DraftwoodError: ``key`` asks for step costs.
        """
        if isinstance(key, CostsOf):
            raise DraftwoodError(
                "this method weighs nodes by cost, and nothing is timed here: give the costs with "
                "--costs FILE, or --gpu and --shape"
            )
        return make()


@dataclass(frozen=True)
class PricedHost:
    """A host with given step costs instead of measured ones."""

    host: Host
    given: StepCosts

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        return self.host.info

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.protocols.Host.model`."""
        return self.host.model(name)

    def head(self, name: Any) -> tuple[DraftHead, DraftModel]:
        """See :meth:`draftwood.protocols.Host.head`."""
        return self.host.head(name)

    @property
    def target(self) -> Target:
        """The other host's target."""
        return self.host.target

    def identity(self, name: Any) -> str:
        """See :meth:`draftwood.protocols.Host.identity`."""
        return self.host.identity(name)

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The given costs if ``key`` asks for step costs, else the other host's object."""
        if isinstance(key, CostsOf):
            return cast(T, FixedCosts(self.given))
        return self.host.share(key, make)
