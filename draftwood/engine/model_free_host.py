"""A host without models: for replays of recordings, and for drafting beside other engines.

It loads neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from draftwood.costs.clock import ClockOf
from draftwood.costs.curve import StepCosts
from draftwood.costs.fixed import priced
from draftwood.costs.recall import CostsOf
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

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
M = TypeVar("M", bound="torch.nn.Module")


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.protocols.Host` with the target's facts, but without models.

    Attributes:
        info: the target's facts.
        costs: step costs, if any are given.
        vocabulary: see :attr:`draftwood.protocols.Host.vocabulary`.
        learnt: objects that learn from steps, by :class:`draftwood.protocols.Learnt`.
        tokenize: what :meth:`encode` does; None: there is no tokenizer.
    """

    info: TargetInfo
    costs: StepCosts | None = None
    vocabulary: str = ""
    learnt: dict[Hashable, Any] = field(default_factory=dict)
    tokenize: Callable[[str], Sequence[int]] | None = None

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

    def encode(self, text: str) -> Sequence[int]:
        """See :meth:`draftwood.protocols.Host.encode`."""
        if self.tokenize is None:
            raise DraftwoodError("there is no tokenizer here: give a drafter no files of text")
        return self.tokenize(text)

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:  # noqa: ARG002
        """Empty: no costs are stored."""
        return ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make the object, unless it has been learnt; step costs are the given ones.

        Raises:
            DraftwoodError: ``key`` asks for step costs, and none are given.
        """
        if isinstance(key, Learnt):
            return kept(self.learnt, key, make)
        if not isinstance(key, CostsOf | ClockOf):
            return make()
        if self.costs is None:
            raise DraftwoodError(
                "this method weighs nodes by cost, and nothing is timed here: give the costs with "
                "--costs FILE, or --gpu and --shape"
            )
        return cast(T, priced(key, self.costs))


def kept(learnt: dict[Hashable, Any], key: Hashable, make: Callable[[], T]) -> T:
    """The object that was learnt under a key, or a new one."""
    if key not in learnt:
        learnt[key] = make()
    return cast(T, learnt[key])
