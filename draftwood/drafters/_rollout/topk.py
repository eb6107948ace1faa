"""The likeliest tokens of a draft model after some nodes: the answer to a one-hot query."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded, uploaded
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.protocols import Candidates, Expand, TargetOutput

Place: TypeAlias = tuple[TargetOutput, int]
"""A node's results: the output of a forward, and the node's row in it."""


def rank(
    query: Expand, places: Sequence[Place], vocabulary: VocabularyMap, node_by_node: bool = False
) -> Candidates:
    """The ``k`` likeliest tokens after each node, with probabilities at the query's temperature.

    Tokens whose probability is NaN are left out.

    Args:
        query: for one-hot children.
        places: ``m``, one per node.
        vocabulary: the model's.
        node_by_node: rank each node alone, the plain twin of ranking a level at once.
    """
    found = None if node_by_node else _rank_level(query, places, vocabulary)
    if found is None:
        found = _rank_node_by_node(query, places, vocabulary)
    if query.temperature == 1:
        return found
    return Candidates(
        found.tokens, _tempered(query, places, vocabulary.of_token[found.tokens], found)
    )


def _rank_level(
    query: Expand, places: Sequence[Place], vocabulary: VocabularyMap
) -> Candidates | None:
    """Rank rows of one forward at once; None if that does not suffice.

    It suffices without excluded tokens, if the forward's own top-k is long enough and every output
    is a token of the target.
    """
    rows, k = places[0][0], query.k
    if any(query.exclude) or k > rows.top_tokens.shape[1]:
        return None
    if any(found is not rows for found, _ in places):
        return None
    where = [row for _, row in places]
    tokens, probs = vocabulary.to_target[rows.top_tokens[where, :k]], rows.top_probs[where, :k]
    if tokens.min(initial=0) < 0 or np.isnan(probs).any():
        return None
    with np.errstate(divide="ignore"):
        return Candidates(tokens, np.log(probs))


def _rank_node_by_node(
    query: Expand, places: Sequence[Place], vocabulary: VocabularyMap
) -> Candidates:
    found = Candidates.none(query)
    excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
    for i, ((rows, row), exclude) in enumerate(zip(places, excludes, strict=True)):
        best, probs = _ranked(rows, row, query.k + len(exclude))
        best = vocabulary.to_target[best]
        invalid = np.isnan(probs)
        if exclude or best.min(initial=0) < 0 or invalid.any():
            best = np.where(invalid, -1, best)
            allowed = [j for j, t in enumerate(best.tolist()) if t >= 0 and t not in exclude]
            best, probs = best[allowed], probs[allowed]
        count = min(query.k, len(best))
        found.tokens[i, :count] = best[:count]
        with np.errstate(divide="ignore"):
            np.log(probs[:count], out=found.logq[i, :count])
    return found


def _ranked(rows: TargetOutput, row: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` likeliest outputs of a row, or all, and their probabilities."""
    k = min(k, rows.logits.shape[1])
    if k <= rows.top_tokens.shape[1]:
        return rows.top_tokens[row, :k], rows.top_probs[row, :k]
    # The row was ranked for a smaller k before.
    probs = torch.softmax(rows.logits[row].float(), dim=-1)
    top = probs.topk(k)
    best, shares = downloaded([top.indices, top.values])
    return best, shares


def _tempered(
    query: Expand, places: Sequence[Place], picks: NDArray[np.int64], found: Candidates
) -> NDArray[np.float32]:
    """``logq`` of the candidates at the query's temperature."""
    scores = torch.stack([rows.logits[row] for rows, row in places]).float() / query.temperature
    [chosen] = uploaded([np.maximum(picks, 0)], scores.device)
    logq: NDArray[np.float32]
    [logq] = downloaded([scores.log_softmax(dim=-1).gather(1, chosen)])
    logq[found.tokens < 0] = -np.inf
    return logq
