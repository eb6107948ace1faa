"""A draft model: a smaller causal language model with the target's vocabulary.

It ranks tokens by its distribution q after a path, or samples from q.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023), over trees as in SpecInfer.
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
            DraftwoodError: it cannot be loaded, cannot run trees, or has another vocabulary.
        """
        return ModelDrafter(host.model(self.model, self.dtype), host.info)


class ModelDrafter(RolloutDrafter):
    """Proposes the draft model's likeliest tokens, or samples.

    Args:
        model: runs the trees.
        target: the target. Draft ids beyond its vocabulary are never proposed, and target ids that
            the draft model lacks are replaced by its last one.
    """

    def __init__(self, model: DraftModel, target: TargetInfo) -> None:
        info = model.info
        ids = np.arange(info.vocab_size)
        ids[target.vocab_size :] = -1
        super().__init__(model, ids, target, info.vocab_size, info.context_limit)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        self._rollout.begin(slot, [*prefill.prompt.tolist(), prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self._rollout.commit(slot, outcome.committed)


PART = Model
