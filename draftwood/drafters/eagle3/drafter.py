"""An EAGLE-3 head: one layer that drafts from the target's own hidden states.

Where the target has been, each row of the head holds a token and the target's features of the
position *before* it; further on, in the tree, it holds the vector that the head itself yielded for
the parent. Rows made of the head's own vectors do not stay: accepted tokens are forwarded again
with the target's features. It refuses to know the head's insides and why nodes are asked about.

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
    DraftModel,
    Expand,
    Head,
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
    """Answers with the head's likeliest tokens, or draws some.

    Args:
        head: what turns features into the head's vectors, and its ids into the target's.
        model: runs the head over trees.
        target: what is drafted for. Its context is the head's too: what published heads name as
            theirs is the length they were trained at.
    """

    def __init__(self, head: Head, model: DraftModel, target: TargetInfo) -> None:
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
        """What the head has not read."""
        return self._rollout.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts: tokens are one ahead of features, so the prompt's first has no row."""
        tokens = [*prefill.prompt.tolist()[1:], prefill.first]
        self._rollout.begin(slot, tokens, self._project(prefill.rows, slice(None)))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed: each of its tokens is drafted from with its parent's features."""
        hidden = self._project(outcome.rows, [ROOT, *outcome.path])
        self._rollout.commit(slot, outcome.committed, hidden)

    def _project(self, rows: TargetOutput, nodes: slice | list[int]) -> torch.Tensor:
        import torch

        assert rows.features is not None, "the target hands over what a drafter needs"
        with torch.inference_mode():
            return self._head.project(rows.features[nodes])

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._rollout.release(slot)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._rollout.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node, in one forward per generation of new nodes.

        Raises:
            DraftwoodError: a query asks for samples without noise, or its temperature is not above
                0.
        """
        return self._rollout.expand(slots, queries)


PART = Eagle3
