"""The DFlash drafter: one forward of a small network says a block of tokens at once.

Its distributions are marginals, given the committed tokens alone. So a chain of the likeliest
tokens is the natural tree, with siblings at the first places; deeper branches are better taken from
another source.

The distributions of DSpark and DFlash2 depend on the path
(:mod:`draftwood.drafters.dflash.conditional`).

Source: *DFlash: Block Diffusion for Flash Speculative Decoding* (z-lab, 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._marginals import MarginalDrafter
from draftwood.drafters.dflash.blocks import BlockDrafter
from draftwood.drafters.dflash.conditional import DFlash2Drafter, DSparkDrafter
from draftwood.protocols import (
    LARGEST_COUNT,
    DraftDtype,
    DrafterSpec,
    Host,
    TargetInfo,
    setting,
)
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw

if TYPE_CHECKING:
    from draftwood.drafters._rollout.topk import Place
    from draftwood.drafters.dflash.network import DFlashNetwork


@dataclass(frozen=True)
class DFlash(DrafterSpec):
    """Settings of a DFlash, DFlash2 or DSpark drafter."""

    model: str | Any = setting(
        "",
        "DFlash, DFlash2 or DSpark drafter made for this target: a directory or a hub id",
        flag="head",
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)
    ahead: int = setting(
        0, "most tokens drafted in a block; 0: as many as it has", least=0, most=LARGEST_COUNT
    )

    summary: ClassVar = "the likeliest tokens of a block drafter, at all depths at once, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is a configuration of DFlash's family."""
        if not config:
            return False
        from draftwood.drafters.dflash.config import is_dflash

        return is_dflash(config)

    def build(self, host: Host) -> BlockDrafter:
        """Load the network.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        from draftwood.drafters.dflash.checkpoint import load_dflash

        network = host.loaded(load_dflash, self.model, self.dtype)
        kind: type[DFlashDrafter | DFlash2Drafter | DSparkDrafter] = DFlashDrafter
        if network.config.markov:
            kind = DSparkDrafter
        elif network.config.selector is not None:
            kind = DFlash2Drafter
        return kind(network, host.info, self.ahead)


class DFlashDrafter(BlockDrafter, MarginalDrafter):
    """Proposes the likeliest tokens of a block, or samples.

    Args:
        network: on the target's device, with neither a Markov head nor a selector.
        target: the target.
        ahead: most tokens drafted in a block; 0: as many as it has.
    """

    def __init__(self, network: DFlashNetwork, target: TargetInfo, ahead: int = 0) -> None:
        super().__init__(network.token_ids, target)
        self.draft_with(network, target.device, ahead)

    def marginals(self, slots: Sequence[int]) -> list[list[Place]]:
        """The outputs of each block's slots."""
        import torch

        with torch.inference_mode():
            logits = self._network.logits(self.blocks(slots))
        return self.by_depth(logits)


PART = DFlash
