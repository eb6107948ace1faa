"""A draft model: a smaller causal language model.

It ranks tokens by its distribution q after a path, or samples from q. With another tokenizer than
the target's, q is restricted to the tokens that both have, and renormalised.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023), over trees as in SpecInfer;
for other tokenizers token-level intersection (Timor et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.protocols import (
    DraftDtype,
    DrafterSpec,
    DraftModel,
    Host,
    Outcome,
    Prefill,
    TargetInfo,
    Translation,
    setting,
)
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


class ModelDrafter(RolloutDrafter):
    """Proposes the draft model's likeliest tokens, or samples.

    Args:
        model: runs the trees.
        target: the target.
        translation: between their tokens; None if the ids are the same. Then draft ids beyond the
            target's vocabulary are never proposed, and target ids that the draft model lacks are
            replaced by its last one.
    """

    def __init__(
        self, model: DraftModel, target: TargetInfo, translation: Translation | None = None
    ) -> None:
        info = model.info
        if translation is None:
            ids = np.arange(info.vocab_size)
            ids[target.vocab_size :] = -1
        else:
            ids = translation.to_target
        limit = info.context_limit
        super().__init__(model, ids, target, info.vocab_size, limit, translation=translation)
        self._translation = translation

    @property
    def note(self) -> str:
        """The share of the vocabularies that it proposes, if the tokenizers differ."""
        return "" if self._translation is None else self._translation.note

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        self._rollout.begin(slot, [*prefill.prompt.tolist(), prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self._rollout.commit(slot, outcome.committed)


PART = Model
