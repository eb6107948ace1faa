"""P-EAGLE: an EAGLE-3 head that was trained to read masks, and says several tokens in one forward.

The row of the last committed token is EAGLE-3's. Behind it are rows of the mask token, with learnt
features in place of the target's. Distributions are marginals given the committed text.

Source: *P-EAGLE: Parallel-Drafting EAGLE with Scalable Training* (AWS, 2026), in its published
checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from draftwood.drafters._mask_token import reads_masks
from draftwood.drafters._masked import MaskedDrafter
from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.errors import DraftwoodError
from draftwood.protocols import LARGEST_COUNT, DraftDtype, DrafterSpec, Host, setting
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw


@dataclass(frozen=True)
class Peagle(DrafterSpec):
    """Settings of a P-EAGLE head."""

    model: str | Any = setting(
        "", "P-EAGLE head made for this target: a directory or a hub id", flag="head"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)
    ahead: int = setting(8, "most tokens drafted in a forward (K)", least=1, most=LARGEST_COUNT)

    summary: ClassVar = "the likeliest tokens of a head of masks, at all depths at once, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is the configuration of a P-EAGLE head."""
        return reads_masks(config)

    def build(self, host: Host) -> MaskedDrafter:
        """Load the head.

        Raises:
            DraftwoodError: it cannot be loaded, was made for another target, or reads no masks.
        """
        if self.missing:
            raise DraftwoodError(
                "no P-EAGLE head is named: give a directory or a hub id, as with --head"
            )
        head, model = host.head(self.model, self.dtype)
        mask = head.mask
        if mask is None:
            raise DraftwoodError(
                "this is an EAGLE head that reads no masks (it lacks mask_hidden): write "
                "drafter=eagle3, or give a P-EAGLE head"
            )
        return MaskedDrafter(HeadDrafter(head, model, host.info), mask, host.info, self.ahead)


PART = Peagle
