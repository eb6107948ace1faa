"""The common part of drafters with an autoregressive head on the target's hidden states.

For a committed token, the head gets the token and the target's features at the position *before*
it. For a drafted node, it gets its own output at the parent instead. Entries computed from its own
output are dropped: accepted tokens are forwarded again with the target's features.
"""

from __future__ import annotations

from draftwood.drafters._features import prompt_features, step_features
from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.protocols import DraftHead, DraftModel, Needs, Outcome, Prefill, TargetInfo


class HeadDrafter(RolloutDrafter):
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
        self._rollout.begin(slot, tokens, prompt_features(prefill))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed. Each of its tokens gets the features of its parent."""
        self._rollout.commit(slot, outcome.committed, step_features(outcome))
