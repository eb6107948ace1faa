"""What a sequence drew in a step, and what from.

Deviation from the usual form: tokens that may not be drawn lose their logits before the softmax and
not their probabilities after it, which is the same q, rounded once.

Knows nothing of models, trees and the accept rule, which may ask later what was drawn from.
"""

from collections.abc import Sequence

import numpy as np
import torch

from draftwood.drafters._rollout.gumbel import GumbelTopK, gumbel_top_k
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw, TreeBuilder


class Draws:
    """What one sequence has drawn in the current step.

    Args:
        outputs: of the draft model.
        gumbel_top_k: how tokens are drawn from q, if it is to be forced.
    """

    def __init__(self, outputs: VocabularyMap, gumbel_top_k: GumbelTopK = gumbel_top_k) -> None:
        self._outputs = outputs
        self._race = gumbel_top_k
        self._kept: list[torch.Tensor] = []
        self._tree: TreeBuilder | None = None
        self._excluded: dict[tuple[int, Draw], frozenset[int]] = {}

    def clear(self) -> None:
        """A step ends: its distributions are forgotten."""
        self._kept.clear()
        self._tree = None

    def draw(self, query: Expand, logits: torch.Tensor) -> Candidates:
        """``k`` tokens after each node, in drawing order, with the numbers that the node has.

        Asking again for a node repeats its draws, or goes on with them if more are asked for.

        Args:
            query: what is asked; it has noise.
            logits: float ``[m, Vd]``, the model's raw logits after each node, to be overwritten.

        Returns:
            Of tokens that cannot be drawn there are none, so a row may hold fewer than ``k``, and
            if it holds any, a handle for :meth:`proposals`, else -1.

        Raises:
            DraftwoodError: a node was asked about before with other tokens excluded.
        """
        assert query.noise is not None
        self._remember(query)
        q = distribution(query, logits, self._outputs)
        generators = [query.noise.draft(node) for node in query.nodes]
        picks, shares = self._race(q, query.k, query.draw, generators)
        found = picks >= 0
        drawn = found.any(axis=1)
        handles = np.where(drawn, len(self._kept) + np.cumsum(drawn) - 1, -1)
        self._kept += [q[i] for i in np.flatnonzero(drawn).tolist()]
        logq = np.full(shares.shape, -np.inf, dtype=np.float32)
        np.log(shares, out=logq, where=found)
        return Candidates(np.where(found, self._outputs.to_target[picks], -1), logq, handles)

    def _remember(self, query: Expand) -> None:
        """Make sure that no node's numbers serve for two different drawings."""
        if query.tree is not self._tree:
            self._tree = query.tree
            self._excluded.clear()
        excluded = query.exclude or [frozenset[int]()] * len(query.nodes)
        for node, gone in zip(query.nodes, excluded, strict=True):
            if self._excluded.setdefault((node, query.draw), gone) != gone:
                raise DraftwoodError(
                    f"children of node {node} were drawn before with other tokens excluded, and by "
                    "the same numbers, so these would depend on those; to go on with a drawing, "
                    "ask again as before with a larger k"
                )

    def proposals(self, handles: Sequence[int]) -> torch.Tensor:
        """The q that tokens of this step were drawn from, bit by bit.

        Args:
            handles: ``n``, as answers named them.

        Returns:
            float32 ``[n, V]`` over the target's tokens, on its device; read only.

        Raises:
            DraftwoodError: nothing was drawn in this step under such a handle.
        """
        for handle in handles:
            if not 0 <= handle < len(self._kept):
                raise DraftwoodError(
                    f"nothing was drawn in this step under handle {handle}; ask for the q of "
                    "nodes that were sampled, before their step is committed"
                )
        return self._outputs.over_target([self._kept[handle] for handle in handles])


def distribution(query: Expand, logits: torch.Tensor, outputs: VocabularyMap) -> torch.Tensor:
    """q, float32 ``[m, Vd]``; not numbers in a row of which nothing is left.

    ``logits`` ``[m, Vd]`` may be overwritten.
    """
    scores = logits.float()
    if query.temperature != 1:
        scores /= query.temperature
    if len(outputs.void):
        scores[:, outputs.void] = -torch.inf
    if query.exclude:
        for row, tokens in zip(scores, query.exclude, strict=True):
            row[outputs.of(tokens)] = -torch.inf
    return torch.softmax(scores, dim=-1)
