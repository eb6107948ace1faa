"""A draft model: a smaller causal language model with the target's vocabulary.

It ranks tokens by its distribution q after a path, or samples from q.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023), over trees as in SpecInfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.protocols import (
    Candidates,
    Drafter,
    DrafterSpec,
    DraftModel,
    Expand,
    Host,
    Outcome,
    Prefill,
    TargetInfo,
    setting,
)
from draftwood.tree import Draw

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Model(DrafterSpec):
    """Settings of a draft model."""

    model: str | PreTrainedModel = setting(
        "embedded-draft", "draft model: 'embedded-draft', a directory or a hub id", flag="draft"
    )

    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> ModelDrafter:
        """Load the model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or has another vocabulary.
        """
        return ModelDrafter(host.model(self.model), host.info)


class ModelDrafter(Drafter):
    """Proposes the draft model's likeliest tokens, or samples.

    Args:
        model: runs the trees.
        target: the target. Draft ids beyond its vocabulary are never proposed, and target ids that
            the draft model lacks are replaced by its last one.
    """

    def __init__(self, model: DraftModel, target: TargetInfo) -> None:
        from draftwood.drafters._rollout.rollout import DraftRollout
        from draftwood.drafters._rollout.vocabulary import VocabularyMap

        info = model.info
        ids = np.arange(info.vocab_size)
        ids[target.vocab_size :] = -1
        vocabulary = VocabularyMap(ids, target)
        self._rollout = DraftRollout(model, vocabulary, info.vocab_size, info.context_limit)

    @property
    def forwards(self) -> int:
        """Forward passes over drafted trees, prompts not counted."""
        return self._rollout.forwards

    def backlog(self, slot: int) -> int:
        """Number of committed tokens that the draft model has not read."""
        return self._rollout.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        self._rollout.begin(slot, [*prefill.prompt.tolist(), prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self._rollout.commit(slot, outcome.committed)

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._rollout.release(slot)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._rollout.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node, with one forward for all new nodes.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        return self._rollout.expand(slots, queries)


PART = Model
