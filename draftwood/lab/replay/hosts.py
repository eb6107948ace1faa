"""Hosts with given step costs, without or with a model."""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.protocols import DraftDtype, DraftHead, DraftModel, Target, TargetInfo, Translation

T = TypeVar("T")
M = TypeVar("M", bound=torch.nn.Module)


class FixedCosts(LiveCosts):
    """Step costs that do not change: without a model, the time of a step means nothing."""

    def observe(self, *step: float) -> None:
        """Ignore the step."""

    def searched(self, *step: float) -> None:
        """Ignore the step."""


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.protocols.Host` with the target's facts, but without models.

    Attributes:
        info: the target's facts.
        costs: step costs, if any are given.
        vocabulary: see :attr:`draftwood.protocols.Host.vocabulary`.
    """

    info: TargetInfo
    costs: StepCosts | None = None
    vocabulary: str = ""

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
        """Make the object; step costs are the given ones.

        Raises:
            DraftwoodError: ``key`` asks for step costs, and none are given.
        """
        if not isinstance(key, CostsOf):
            return make()
        if self.costs is None:
            raise DraftwoodError(
                "this method weighs nodes by cost, and nothing is timed here: give the costs with "
                "--costs FILE, or --gpu and --shape"
            )
        return cast(T, FixedCosts(self.costs))


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

    def priced(self, costs: StepCosts) -> "PricedHost":
        """A host with other step costs that shares everything else."""
        other = copy(self)
        other._costs = costs
        return other

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The given costs if ``key`` asks for step costs, else the shared object."""
        if isinstance(key, CostsOf):
            return cast(T, FixedCosts(self._costs))
        return super().share(key, make)
