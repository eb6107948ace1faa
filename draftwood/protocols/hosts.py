"""How a drafter comes about: its settings, and what it may ask of where it is built.

A drafter that has a model of its own neither loads it nor knows how trees are run on it: it is
handed a :class:`DraftModel`. Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import Drafter, Needs, Rows, TargetInfo
from draftwood.tree import Draw, TokenTree

if TYPE_CHECKING:
    import torch

    from draftwood.costs.live import LiveCosts


class DraftModel(Protocol):
    """A model run level by level over growing trees, with a cache and slots of its own.

    A tree's nodes are given in the order in which they were added, and node 0 follows what its slot
    holds. ``done`` says how many nodes of each tree earlier calls since the last :meth:`commit`
    have scored: these are in the cache already, and rows are returned for the others only.

    ``hidden`` is for models that are given a vector beside each token, such as an EAGLE head:
    ``[m, H]`` for the m new nodes of each tree (or tokens of each prompt); such a model's
    ``features`` are the vectors that it yields in turn.
    """

    @property
    def info(self) -> TargetInfo: ...

    def open(self, capacity: int) -> int:
        """Reserve a slot for up to ``capacity`` tokens (it grows if need be); its number."""
        ...

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[Rows]:
        """Cache every prompt behind what its slot holds, in chunks and with logits of their last
        rows only; see :meth:`draftwood.protocols.Target.prefill`."""
        ...

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[Rows]:
        """Score the new nodes of every tree in one forward pass; each tree has one or more."""
        ...

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep node 0 and the nodes of each path (node 0 excluded)."""
        ...

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        ...

    def release(self, slot: int) -> None:
        """Give the slot back."""
        ...


class Head(Protocol):
    """What a drafter knows of a head on the target, beside running it as a :class:`DraftModel`."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose entering hidden states it reads, in this order."""
        ...

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Its vectors ``[.., H]`` for the target's features ``[.., taps * Ht]``."""
        ...

    def target_ids(self) -> NDArray[np.int64]:
        """The target's id of each of its output ids."""
        ...


class Host(Protocol):
    """What a drafter may ask of the place where it is built."""

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        ...

    def model(self, name: Any) -> DraftModel:
        """A causal language model with the target's vocabulary, on the target's device.

        Args:
            name: what :func:`draftwood.models.load` takes, or a loaded transformers model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or has another vocabulary.
        """
        ...

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """An EAGLE-3 head, which shares the target's embedding unless it has its own.

        Args:
            name: ``"embedded-eagle3"``, a directory, a hub id, or a loaded head.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        ...

    def costs(self, drafters: Mapping[str, Built]) -> LiveCosts:
        """What a step of the target costs, and a level of each of the drafters that has a model.

        Measured when first asked for, or found where that was kept; the same object from then on.
        """
        ...


class DrafterSpec(Protocol):
    """The frozen settings of a drafter; its fields are command-line flags."""

    @property
    def model(self) -> Any:
        """What it asks its host for, a model's name or the model; None if it has none."""
        ...

    @property
    def draws(self) -> frozenset[Draw]:
        """How it can be asked to choose children."""
        ...

    def build(self, host: Host) -> Drafter:
        """A fresh drafter.

        Raises:
            DraftwoodError: the settings do not fit the target.
        """
        ...


@dataclass(frozen=True, eq=False)
class Built:
    """A drafter and the settings it was built from."""

    spec: DrafterSpec
    drafter: Drafter
