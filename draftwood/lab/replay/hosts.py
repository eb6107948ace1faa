"""Hosts with given step costs, without or with a model."""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.costs.clock import Clock, ClockOf, StepSize
from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    DraftDtype,
    DraftHead,
    DraftModel,
    Learnt,
    Target,
    TargetInfo,
    Translation,
)

T = TypeVar("T")
M = TypeVar("M", bound=torch.nn.Module)


class FixedCosts(LiveCosts):
    """Step costs that do not change: without a model, the time of a step means nothing."""

    def observe(self, *step: float) -> None:
        """Ignore the step."""

    def searched(self, *step: object) -> None:
        """Ignore the step."""


class CostClock(Clock):
    """A clock that reads step costs.

    Args:
        costs: of a step.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs

    def seconds(self, size: StepSize, measured: float) -> float:  # noqa: ARG002
        """Seconds that a step of this size costs; what was measured means nothing."""
        return self._costs.step(size.tokens, size.context, size.batch)


def priced(key: Hashable, costs: StepCosts) -> Any:
    """What a host shares under a key that asks for costs or a clock; None under others."""
    if isinstance(key, CostsOf):
        return FixedCosts(costs)
    return CostClock(costs) if isinstance(key, ClockOf) else None


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.protocols.Host` with the target's facts, but without models.

    Attributes:
        info: the target's facts.
        costs: step costs, if any are given.
        vocabulary: see :attr:`draftwood.protocols.Host.vocabulary`.
        learnt: objects that learn from steps, by :class:`draftwood.protocols.Learnt`.
    """

    info: TargetInfo
    costs: StepCosts | None = None
    vocabulary: str = ""
    learnt: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """Not available."""
        raise DraftwoodError("there is no target here: nothing can be measured")

    def model(
        self,
        name: Any,
        dtype: DraftDtype = "auto",  # noqa: ARG002
    ) -> tuple[DraftModel, Translation | None]:
        """Not available."""
        raise DraftwoodError(f"there is no model {name!r} here")

    def head(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftHead, DraftModel]:  # noqa: ARG002
        """Not available."""
        raise DraftwoodError(f"there is no head {name!r} here")

    def loaded(
        self,
        load: Callable[[str, Target, torch.dtype], M],  # noqa: ARG002
        name: Any,
        dtype: DraftDtype = "auto",  # noqa: ARG002
    ) -> M:
        """None: raises :class:`DraftwoodError`."""
        raise DraftwoodError(f"there is no head {name!r} here")

    def encode(self, text: str) -> Sequence[int]:  # noqa: ARG002
        """Not available."""
        raise DraftwoodError("there is no tokenizer here: give a drafter no files of text")

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:  # noqa: ARG002
        """Empty: no costs are stored."""
        return ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make the object, unless it has been learnt; step costs are the given ones.

        Raises:
            DraftwoodError: ``key`` asks for step costs, and none are given.
        """
        if isinstance(key, Learnt):
            return _kept(self.learnt, key, make)
        if not isinstance(key, CostsOf | ClockOf):
            return make()
        if self.costs is None:
            raise DraftwoodError(
                "this method weighs nodes by cost, and nothing is timed here: give the costs with "
                "--costs FILE, or --gpu and --shape"
            )
        return cast(T, priced(key, self.costs))


class PricedHost(ModelHost):
    """A host with given step costs instead of measured ones.

    Args:
        target: the target.
        tokenizer: the target's.
        costs: step costs.
    """

    def __init__(
        self, target: Target, tokenizer: PreTrainedTokenizerBase, costs: StepCosts
    ) -> None:
        super().__init__(target, tokenizer)
        self._costs = costs
        self._learnt: dict[Hashable, Any] = {}

    def priced(self, costs: StepCosts) -> "PricedHost":
        """A host with other step costs that shares everything else."""
        other = copy(self)
        other._costs = costs
        return other

    def having(self, learnt: dict[Hashable, Any]) -> "PricedHost":
        """A host with these objects that learn from steps, which shares everything else."""
        other = copy(self)
        other._learnt = learnt
        return other

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The given costs if ``key`` asks for step costs, else the shared object."""
        if isinstance(key, Learnt):
            return _kept(self._learnt, key, make)
        found = priced(key, self._costs)
        return super().share(key, make) if found is None else cast(T, found)


def _kept(learnt: dict[Hashable, Any], key: Hashable, make: Callable[[], T]) -> T:
    if key not in learnt:
        learnt[key] = make()
    return cast(T, learnt[key])
