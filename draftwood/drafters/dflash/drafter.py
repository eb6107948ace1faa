"""The DFlash drafter: one forward of a small network says a block of tokens at once.

Its distributions are marginals, given the committed tokens alone. So a chain of the likeliest
tokens is the natural tree, with siblings at the first places; deeper branches are better taken from
another source.

Source: *DFlash: Block Diffusion for Flash Speculative Decoding* (z-lab, 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._features import prompt_features, step_features
from draftwood.drafters._marginals import MarginalDrafter
from draftwood.protocols import (
    DraftDtype,
    DrafterSpec,
    Host,
    Needs,
    Outcome,
    Prefill,
    TargetInfo,
    setting,
)
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._context_cache import ContextCache
    from draftwood.drafters.dflash.network import DFlashNetwork


@dataclass(frozen=True)
class DFlash(DrafterSpec):
    """Settings of a DFlash drafter."""

    model: str | Any = setting(
        "", "DFlash drafter made for this target: a directory or a hub id", flag="head"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)
    ahead: int = setting(0, "most tokens drafted in a block; 0: as many as it has", least=0)

    summary: ClassVar = "the likeliest tokens of a block drafter, at all depths at once, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is a configuration of DFlash's family."""
        if not config:
            return False
        from draftwood.drafters.dflash.config import is_dflash

        return is_dflash(config)

    @property
    def missing(self) -> str:
        """``model``, unless it is given."""
        return "model" if self.model == "" else ""

    def build(self, host: Host) -> DFlashDrafter:
        """Load the network.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        from draftwood.drafters.dflash.checkpoint import load_dflash

        network = host.loaded(load_dflash, self.model, self.dtype)
        return DFlashDrafter(network, host.info, self.ahead)


@dataclass
class _Text:
    """A request's committed text.

    Attributes:
        context: of the positions before the anchor.
        anchor: the last token.
    """

    context: ContextCache
    anchor: int


class DFlashDrafter(MarginalDrafter):
    """Proposes the likeliest tokens of a block, or samples.

    Args:
        network: on the target's device.
        target: the target.
        ahead: most tokens drafted in a block; 0: as many as it has.
    """

    def __init__(self, network: DFlashNetwork, target: TargetInfo, ahead: int = 0) -> None:
        super().__init__(network.token_ids, target)
        self._network = network
        self._device = target.device
        config = network.config
        self._depth = min(ahead or config.drafted, config.drafted)
        self._texts: dict[int, _Text] = {}

    @property
    def needs(self) -> Needs:
        """The target's hidden states that the network reads."""
        return Needs(taps=self._network.config.taps)

    @property
    def token_bytes(self) -> int:
        """Bytes of a position's keys and values."""
        sizes, weight = self._network.config.layers, self._network.fc.weight
        width = int(sizes.num_key_value_heads or 0) * int(sizes.head_dim)
        return 2 * len(self._network.layers) * width * weight.element_size()

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

    def marginals(self, slots: Sequence[int]) -> torch.Tensor:
        """Logits ``[b, m, Vd]`` of the tokens after each root."""
        import torch

        texts = [self._texts[slot] for slot in slots]
        count = self._depth if self._network.config.from_anchor else self._depth + 1
        with torch.inference_mode():
            anchors = torch.tensor([text.anchor for text in texts], device=self._device)
            places = torch.tensor([text.context.length for text in texts], device=self._device)
            contexts = [text.context.layers() for text in texts]
            found: torch.Tensor = self._network(anchors, places, contexts, count)
        return found[:, count - self._depth :]


PART = DFlash
