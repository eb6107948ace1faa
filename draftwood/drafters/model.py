"""A draft model: a smaller causal language model.

It ranks tokens by its distribution q after a path, or samples from q. With another tokenizer than
the target's, q is restricted to the tokens that both have, and renormalised.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023), over trees as in SpecInfer;
for other tokenizers token-level intersection (Timor et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.protocols import DraftDtype, DrafterSpec, Host, setting
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Model(DrafterSpec):
    """Settings of a draft model."""

    model: str | PreTrainedModel = setting(
        "embedded-draft", "draft model: 'embedded-draft', a directory or a hub id", flag="draft"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)

    summary: ClassVar = "the likeliest tokens of a smaller model, or samples"
    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> ModelDrafter:
        """Load the model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or shares too few of the target's
                tokens.
        """
        model, translation = host.model(self.model, self.dtype)
        return ModelDrafter(model, host.info, translation)


PART = Model
