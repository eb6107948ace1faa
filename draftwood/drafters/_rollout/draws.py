"""Tokens sampled from a draft model's q, and the rows of q that the accept rule needs.

Deviation from the common form: excluded tokens lose their logits before the softmax, not their
probabilities after it. That is the same q, rounded once.
"""

from collections.abc import Sequence

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.drafters._rollout.gumbel import GumbelTopK, gumbel_top_k
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw, TreeBuilder


class Draws:
    """The draws of one sequence in the present step.

    Args:
        vocabulary: the draft model's.
        gumbel_top_k: draws tokens from q.
    """

    def __init__(self, vocabulary: VocabularyMap, gumbel_top_k: GumbelTopK = gumbel_top_k) -> None:
        self._vocabulary = vocabulary
        self._gumbel_top_k = gumbel_top_k
        self._rows: list[torch.Tensor] = []
        self._tree: TreeBuilder | None = None
        self._asked: dict[int, tuple[Draw, float, frozenset[int]]] = {}
        self._handles: dict[int, int] = {}

    def clear(self) -> None:
        """Forget the step's distributions."""
        self._rows.clear()
        self._tree = None  # the next tree's nodes are others

    def draw(self, query: Expand, logits: torch.Tensor) -> Candidates:
        """Sample ``k`` tokens after each node, in drawing order, with the node's random numbers.

        A second query for a node repeats its draws, and continues them if ``k`` is larger; their
        handle stays, since siblings of one handle are samples of one drawing.

        Args:
            query: with noise.
            logits: float ``[m, Vd]``, the model's raw logits after each node; overwritten.

        Returns:
            Candidates; a row has fewer than ``k`` if fewer tokens have positive probability.
            ``q_rows`` are handles for :meth:`proposals`, -1 for a row without tokens.

        Raises:
            DraftwoodError: an earlier query for a node drew from another distribution, or in
                another way.
        """
        assert query.noise is not None
        self._remember(query)
        q = distribution(query, logits, self._vocabulary)
        for i, node in enumerate(query.nodes):
            if node in self._handles:
                q[i] = self._rows[self._handles[node]]
        generators = [query.noise.draft(node) for node in query.nodes]
        picks, probs = self._gumbel_top_k(q, query.k, query.draw, generators)
        found = picks >= 0
        handles = np.full(len(query.nodes), -1)
        for i in np.flatnonzero(found.any(axis=1)).tolist():
            handle = self._handles.setdefault(query.nodes[i], len(self._rows))
            if handle == len(self._rows):
                self._rows.append(q[i])
            handles[i] = handle
        logq = np.full(probs.shape, -np.inf, dtype=np.float32)
        np.log(probs, out=logq, where=found)
        return Candidates(np.where(found, self._vocabulary.to_target[picks], -1), logq, handles)

    def _remember(self, query: Expand) -> None:
        """Check that no node's random numbers serve two different drawings."""
        if query.tree is not self._tree:
            self._tree = query.tree
            self._asked.clear()
            self._handles.clear()
        excluded = query.exclude or [frozenset[int]()] * len(query.nodes)
        for node, gone in zip(query.nodes, excluded, strict=True):
            asked = query.draw, query.temperature, gone
            if self._asked.setdefault(node, asked) != asked:
                raise DraftwoodError(
                    f"children of node {node} were drawn before in another way, at another "
                    "temperature or with other tokens excluded, and by the same numbers, so these "
                    "would depend on those; to go on with a drawing, ask again as before with a "
                    "larger k"
                )

    def proposals(self, handles: Sequence[int]) -> torch.Tensor:
        """The q that this step's tokens were drawn from, bit for bit.

        Args:
            handles: ``n`` of :attr:`draftwood.protocols.Candidates.q_rows`.

        Returns:
            float32 ``[n, V]`` over the target's tokens, on its device; read only.

        Raises:
            DraftwoodError: a handle is not of this step.
        """
        for handle in handles:
            if not 0 <= handle < len(self._rows):
                raise DraftwoodError(
                    f"nothing was drawn in this step under handle {handle}; ask for the q of "
                    "nodes that were sampled, before their step is committed"
                )
        return self._vocabulary.target_rows([self._rows[handle] for handle in handles])


def distribution(query: Expand, logits: torch.Tensor, vocabulary: VocabularyMap) -> torch.Tensor:
    """q float32 ``[m, Vd]``; a row without possible tokens is NaN.

    ``logits`` ``[m, Vd]`` may be overwritten.
    """
    scores = logits.float()
    if query.temperature != 1:
        scores /= query.temperature
    if len(vocabulary.unmapped):
        vocabulary.mask(scores)
    outputs = [vocabulary.outputs_of(tokens) for tokens in query.exclude]
    if sum(map(len, outputs)):
        rows = np.repeat(np.arange(len(outputs)), [len(each) for each in outputs])
        places = uploaded([rows, np.concatenate(outputs)], scores.device)
        scores.index_put_(tuple(places), scores.new_full((), -torch.inf))
    return torch.softmax(scores, dim=-1)
