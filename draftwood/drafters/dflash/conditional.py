"""Drafters of blocks whose distributions depend on the path: DSpark and DFlash2.

One forward of the network serves all levels of a step, as in DFlash. What the tokens on a node's
path change of its slot's logits is a small product for each node. DSpark's Markov head adds to the
logits of all tokens; DFlash2's selector scores the likeliest tokens of a slot alone.

Source: DSpark (DeepSeek, 2026) and DFlash2 (z-lab, 2026), in their published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.drafters._paths import PathDrafter
from draftwood.drafters.dflash.blocks import BlockDrafter
from draftwood.protocols import Candidates, Expand, TargetInfo

if TYPE_CHECKING:
    import torch

    from draftwood.drafters.dflash.network import DFlashNetwork


class _ConditionalDrafter(BlockDrafter, PathDrafter):
    """What both have in common.

    Args:
        network: on the target's device.
        target: the target.
        ahead: most tokens drafted in a block; 0: as many as it has.
    """

    at_once: ClassVar = True

    def __init__(self, network: DFlashNetwork, target: TargetInfo, ahead: int = 0) -> None:
        super().__init__(network.token_ids, target, network.config.ahead(ahead))
        self.draft_with(network, target.device, ahead)
        self._blocks: dict[int, tuple[torch.Tensor, ...]] = {}

    def forget(self, slot: int) -> None:
        """Drop the block of a slot."""
        super().forget(slot)
        self._blocks.pop(slot, None)


class DSparkDrafter(_ConditionalDrafter):
    """Proposes the likeliest tokens of a block given those before, or samples.

    Its network has a Markov head.
    """

    def read(self, slots: Sequence[int]) -> None:
        """Compute the last hidden states ``[m, H]`` and the logits ``[m, Vd]`` of blocks."""
        rows = self.blocks(slots)
        found = zip(rows, self._network.logits(rows), strict=True)
        self._blocks |= dict(zip(slots, found, strict=True))

    def scores(self, depth: int, slots: Sequence[int], paths: torch.Tensor) -> torch.Tensor:
        """Logits ``[m, Vd]`` of the slot of a depth, with what the Markov head adds."""
        import torch

        blocks = [self._blocks[slot] for slot in slots]
        rows = torch.stack([rows[: depth + 1] for rows, _ in blocks])
        logits = torch.stack([logits[depth] for _, logits in blocks])
        added: torch.Tensor = self._network.markov_head(rows, paths)
        return logits + added.to(logits.dtype)


class DFlash2Drafter(_ConditionalDrafter):
    """Proposes the candidates of a slot that score best after the token before, or samples.

    Tokens that are no candidates of their slot have probability 0. Its network has a selector.
    """

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node, fewer where a slot has fewer candidates.

        Raises:
            DraftwoodError: see :meth:`draftwood.drafters._ahead.AheadDrafter.expand`.
        """
        found = super().expand(slots, queries)
        return [
            replace(each, tokens=np.where(each.logq > -np.inf, each.tokens, -1)) for each in found
        ]

    def read(self, slots: Sequence[int]) -> None:
        """Compute the candidates of blocks."""
        from draftwood.drafters.dflash.selector import SlotCandidates

        rows = self.blocks(slots)
        found = self._network.candidate_selector.candidates(rows, self._network.logits(rows))
        for slot, *parts in zip(slots, *found, strict=True):
            self._blocks[slot] = SlotCandidates(*parts)

    def scores(self, depth: int, slots: Sequence[int], paths: torch.Tensor) -> torch.Tensor:
        """Scores ``[m, V]`` of the candidates of the slot of a depth; ``-inf`` elsewhere."""
        import torch

        from draftwood.drafters.dflash.selector import SlotCandidates

        parts = zip(*(self._blocks[slot] for slot in slots), strict=True)
        given = SlotCandidates(*(torch.stack([one[depth] for one in part]) for part in parts))
        found: torch.Tensor = self._network.candidate_selector(paths[:, -1], given)
        whole = found.new_full((len(slots), len(self._network.token_ids)), -torch.inf)
        return whole.scatter_(1, given.tokens, found)
