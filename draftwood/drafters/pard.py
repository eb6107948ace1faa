"""PARD: a draft model that was trained to read masks, and says several tokens in one forward.

It is an ordinary language model whose configuration names a mask token. Its distributions are
marginals given the committed text. The drafter ``model`` runs the same model without masks, a level
a forward.

Source: An et al., *PARD: Accelerating LLM Inference with Low-Cost PARallel Draft Model Adaptation*
(AMD, 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._mask_token import mask_token, reads_masks
from draftwood.drafters._masked import MaskedDrafter
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.errors import DraftwoodError
from draftwood.protocols import LARGEST_COUNT, DraftDtype, DrafterSpec, Host, Mask, setting
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HEADS = ("draft_vocab_size", "eagle_config", "speculators_model_type")
"""Fields of a head's configuration, which may name a mask token too."""


@dataclass(frozen=True)
class Pard(DrafterSpec):
    """Settings of a PARD draft model."""

    model: str | PreTrainedModel = setting(
        "", "PARD draft model, with a pard_token: a directory or a hub id", flag="draft"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)
    ahead: int = setting(8, "most tokens drafted in a forward (K)", least=1, most=LARGEST_COUNT)

    summary: ClassVar = (
        "the likeliest tokens of a model of masks, at all depths at once, or samples"
    )
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is the configuration of a language model that reads masks."""
        return reads_masks(config) and not any(name in config for name in _HEADS)

    def build(self, host: Host) -> MaskedDrafter:
        """Load the model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, names no mask token, or shares
                too few of the target's tokens.
        """
        if self.missing:
            raise DraftwoodError(
                "no PARD draft model is named: give a directory or a hub id, as with --draft"
            )
        model, translation = host.model(self.model, self.dtype)
        advice = "give a PARD draft model, or drafter=model for this one"
        token = mask_token(model.info.config, model.info.vocab_size, "the draft model", advice)
        reader = ModelDrafter(model, host.info, translation)
        return MaskedDrafter(reader, Mask(token), host.info, self.ahead)


PART = Pard
