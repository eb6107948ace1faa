"""The common part of drafters with a language model, which reads the committed text."""

from __future__ import annotations

import numpy as np

from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.protocols import DraftModel, Outcome, Prefill, TargetInfo, Translation


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
