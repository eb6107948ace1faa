"""The EAGLE-3 drafter: a one-layer head that drafts from the target's hidden states.

For a committed token, the head gets the token and the target's features at the position *before*
it. For a drafted node, it gets its own output at the parent instead. Entries computed from its own
output are not kept: accepted tokens are forwarded again with the target's features.

Source: Li et al., *EAGLE-3* (2025), sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.protocols import (
    Candidates,
    Drafter,
    DrafterSpec,
    DraftHead,
    DraftModel,
    Expand,
    Host,
    Needs,
    Outcome,
    Prefill,
    TargetInfo,
    TargetOutput,
    setting,
)
from draftwood.tree import ROOT, Draw

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Eagle3(DrafterSpec):
    """Settings of an EAGLE-3 head."""

    model: str | Any = setting(
        "embedded-eagle3",
        "EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id",
        flag="head",
    )

    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> Eagle3Drafter:
        """Load the head.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        head, model = host.head(self.model)
        return Eagle3Drafter(head, model, host.info)


class Eagle3Drafter(Drafter):
    """Proposes the head's likeliest tokens, or samples.

    Args:
        head: projects features, and maps its ids to the target's.
        model: runs the head over trees.
        target: the target. Its context limit is the head's too: the limit in a published head's
            config is its training length.
    """

    def __init__(self, head: DraftHead, model: DraftModel, target: TargetInfo) -> None:
        from draftwood.drafters._rollout.rollout import DraftRollout
        from draftwood.drafters._rollout.vocabulary import VocabularyMap

        self._head = head
        vocabulary = VocabularyMap(head.target_ids(), target)
        self._rollout = DraftRollout(model, vocabulary, target.vocab_size, target.context_limit)

    @property
    def needs(self) -> Needs:
        """The target's features, at the prompt's positions too."""
        return Needs(taps=self._head.taps)

    @property
    def forwards(self) -> int:
        """Forward passes over drafted trees, prompts not counted."""
        return self._rollout.forwards

    def backlog(self, slot: int) -> int:
        """Number of committed tokens that the head has not read."""
        return self._rollout.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts. Tokens are one position ahead of features: the first has no row."""
        tokens = [*prefill.prompt.tolist()[1:], prefill.first]
        self._rollout.begin(slot, tokens, self._project(prefill.rows, slice(None)))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed. Each of its tokens gets the features of its parent."""
        hidden = self._project(outcome.rows, [ROOT, *outcome.path])
        self._rollout.commit(slot, outcome.committed, hidden)

    def _project(self, rows: TargetOutput, nodes: slice | list[int]) -> torch.Tensor:
        import torch

        assert rows.features is not None, "the target returns the features of the drafter's taps"
        with torch.inference_mode():
            return self._head.project(rows.features[nodes])

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._rollout.release(slot)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._rollout.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node, with one forward per generation of new nodes.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        return self._rollout.expand(slots, queries)


PART = Eagle3
