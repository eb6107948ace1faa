"""The EAGLE-3 drafter: a one-layer head that drafts from the target's hidden states.

:mod:`draftwood.drafters._rollout.head_drafter` says what the head is given.

Source: Li et al., *EAGLE-3* (2025), sections 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.errors import DraftwoodError
from draftwood.protocols import DraftDtype, DrafterSpec, Host, setting
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw


@dataclass(frozen=True)
class Eagle3(DrafterSpec):
    """Settings of an EAGLE-3 head."""

    model: str | Any = setting(
        "embedded-eagle3",
        "EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id",
        flag="head",
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)

    summary: ClassVar = "the likeliest tokens of a head on the target's features, or samples"
    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> HeadDrafter:
        """Load the head.

        Raises:
            DraftwoodError: it cannot be loaded, was made for another target, or reads masks.
        """
        head, model = host.head(self.model, self.dtype)
        if head.mask is not None:
            raise DraftwoodError(
                "this is a P-EAGLE head (it has mask_hidden), which drafts with masks: write "
                "drafter=peagle"
            )
        return HeadDrafter(head, model, host.info)


PART = Eagle3
