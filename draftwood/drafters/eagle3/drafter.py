"""The EAGLE-3 drafter: a one-layer head that drafts from the target's hidden states.

For a committed token, the head gets the token and the target's features at the position *before*
it. For a drafted node, it gets its own output at the parent instead. Entries computed from its own
output are dropped: accepted tokens are forwarded again with the target's features.

Source: Li et al., *EAGLE-3* (2025), sections 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.protocols import (
    DraftDtype,
    DrafterSpec,
    DraftHead,
    DraftModel,
    Host,
    Needs,
    Outcome,
    Prefill,
    TargetInfo,
    TargetOutput,
    setting,
)
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
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
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)

    summary: ClassVar = "the likeliest tokens of a head on the target's features, or samples"
    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> Eagle3Drafter:
        """Load the head.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        head, model = host.head(self.model, self.dtype)
        return Eagle3Drafter(head, model, host.info)


class Eagle3Drafter(RolloutDrafter):
    """Proposes the head's likeliest tokens, or samples.

    Args:
        head: projects features, and maps its ids to the target's.
        model: runs the head over trees.
        target: the target. Its context limit is the head's too: the limit in a published head's
            config is its training length.
    """

    def __init__(self, head: DraftHead, model: DraftModel, target: TargetInfo) -> None:
        ids, limit = head.target_ids(), target.context_limit
        super().__init__(model, ids, target, target.vocab_size, limit, head.project)
        self._head = head

    @property
    def needs(self) -> Needs:
        """The target's features, at the prompt's positions too."""
        return Needs(taps=self._head.taps)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts. Tokens are one position ahead of features: the first has no row."""
        tokens = [*prefill.prompt.tolist()[1:], prefill.first]
        self._rollout.begin(slot, tokens, _features(prefill.rows))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed. Each of its tokens gets the features of its parent."""
        found, nodes = _features(outcome.rows), [ROOT, *outcome.path]
        count = len(nodes)
        # A copy, so that the other nodes' rows do not stay alive; of the first ones it is quicker.
        own = found[:count].clone() if nodes[-1] == count - 1 else found[nodes]
        self._rollout.commit(slot, outcome.committed, own)


def _features(rows: TargetOutput) -> torch.Tensor:
    assert rows.features is not None, "the target returns the features of the drafter's taps"
    return rows.features


PART = Eagle3
