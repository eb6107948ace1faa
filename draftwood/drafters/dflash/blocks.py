"""What drafters of blocks have in common: the texts of requests, and the blocks behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from draftwood.drafters._ahead import AheadDrafter
from draftwood.drafters._features import prompt_features, step_features
from draftwood.protocols import Needs, Outcome, Prefill

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._context_cache import ContextCache
    from draftwood.drafters.dflash.network import DFlashNetwork


@dataclass
class _Text:
    """A request's committed text.

    Attributes:
        context: of the positions before the anchor.
        anchor: the last token.
    """

    context: ContextCache
    anchor: int


class BlockDrafter(AheadDrafter):
    """A drafter with a DFlash network (:meth:`draft_with`)."""

    _network: DFlashNetwork
    _texts: dict[int, _Text]

    def draft_with(self, network: DFlashNetwork, device: torch.device, ahead: int) -> None:
        """Use a network on a device, for at most ``ahead`` tokens; 0: as many as it drafts."""
        self._network = network
        self._device = device
        self._drafted = network.config.ahead(ahead)
        self._texts = {}

    @property
    def deepest(self) -> int:
        """Tokens drafted in a block."""
        return self._drafted

    @property
    def needs(self) -> Needs:
        """The target's hidden states that the network reads."""
        return Needs(taps=self._network.config.taps)

    @property
    def token_bytes(self) -> int:
        """Bytes of a position's keys and values, in buffers that grow."""
        from draftwood.drafters._context_cache import GROWTH

        sizes, weight = self._network.config.layers, self._network.fc.weight
        width = int(sizes.num_key_value_heads or 0) * int(sizes.head_dim)
        return int(GROWTH * 2 * len(self._network.layers) * width * weight.element_size())

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        from draftwood.drafters._context_cache import ContextCache

        self.start(slot)
        self._texts[slot] = _Text(ContextCache(self._network.read), prefill.first)
        self._texts[slot].context.append(prompt_features(prefill))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed: the root and the accepted nodes have features."""
        self.step(slot)
        text = self._texts[slot]
        text.anchor = outcome.committed[-1]
        text.context.append(step_features(outcome))

    def release(self, slot: int) -> None:
        """The request has ended."""
        super().release(slot)
        self._texts.pop(slot, None)

    def blocks(self, slots: Sequence[int]) -> torch.Tensor:
        """The last hidden states ``[b, m, H]`` of the slots that draft, behind each text."""
        from draftwood.copies import uploaded

        texts = [self._texts[slot] for slot in slots]
        count = self._drafted if self._network.config.from_anchor else self._drafted + 1
        given = np.array([(text.anchor, text.context.length) for text in texts], dtype=np.int64)
        anchors, places = uploaded([*given.T], self._device)
        contexts = [text.context.layers() for text in texts]
        found = self._network.block(anchors, places, contexts, count)
        return found[:, count - self._drafted :]
