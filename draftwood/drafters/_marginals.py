"""The common part of drafters that propose by depth: heads, block drafters, models of masks.

Such a drafter computes the distributions of the next tokens together, each given the committed
tokens alone. They are marginals: those of a depth do not depend on the drafted tokens above. So all
nodes of a depth have the same children, and one forward answers every query of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from draftwood.drafters._ahead import AheadDrafter
from draftwood.protocols import Expand, TargetInfo

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.topk import Place


class MarginalDrafter(AheadDrafter):
    """Proposes the likeliest tokens of each depth, or samples.

    Args:
        token_ids: int64 ``[Vd]``, the id of each output; those beyond the target's tokens are
            padding.
        target: the target.
    """

    at_once: ClassVar = True

    def __init__(self, token_ids: torch.Tensor, target: TargetInfo) -> None:
        super().__init__(token_ids, target)
        self._outputs: dict[int, list[Place]] = {}

    @abstractmethod
    def marginals(self, slots: Sequence[int]) -> list[list[Place]]:
        """The outputs for the tokens after the root of each slot, by depth, of one forward."""

    def by_depth(self, logits: torch.Tensor) -> list[list[Place]]:
        """Outputs of logits ``[b, m, Vd]``, which are masked in place."""
        rows, depths = self.ranked(logits.flatten(0, 1)), logits.shape[1]
        return [
            [(rows, first + depth) for depth in range(depths)]
            for first in range(0, len(logits) * depths, depths)
        ]

    def prepare(self, slots: Sequence[int]) -> None:
        """Compute the distributions of the slots that have none."""
        fresh = [slot for slot in slots if slot not in self._outputs]
        if fresh:
            found = self.marginals(fresh)
            self._forwards += any(found)
            self._outputs |= dict(zip(fresh, found, strict=True))

    def ahead(self, slot: int) -> int:
        """The number of distributions."""
        return len(self._outputs[slot])

    def places(self, asked: Sequence[tuple[int, Expand]]) -> list[list[Place]]:
        """The output at each node, which is that at its depth."""
        return [
            [self._outputs[slot][query.tree.depths[node]] for node in query.nodes]
            for slot, query in asked
        ]

    def forget(self, slot: int) -> None:
        """Drop the distributions of a slot."""
        self._outputs.pop(slot, None)
