"""Answers a one-hot query: a draft model's likeliest tokens after some nodes.

Knows where the model's results are, not how they came about.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.protocols import Candidates, Expand, TargetOutput

Place: TypeAlias = tuple[TargetOutput, int]
"""Where the results of a node are: the rows of a forward, and which of them."""


def rank(
    query: Expand, places: Sequence[Place], outputs: VocabularyMap, one_by_one: bool = False
) -> Candidates:
    """The ``k`` likeliest tokens after each node, with their probabilities at the temperature.

    A token whose probability is not a number is not offered.

    Args:
        query: what is asked; its temperature changes no order.
        places: ``m``, one a node.
        outputs: of the model.
        one_by_one: rank node by node, the plain twin of ranking a level at once.
    """
    found = None if one_by_one else _rank_level(query, places, outputs)
    if found is None:
        found = _rank_one_by_one(query, places, outputs)
    if query.temperature == 1:
        return found
    return Candidates(found.tokens, _tempered(query, places, outputs.of_token[found.tokens], found))


def _rank_level(
    query: Expand, places: Sequence[Place], outputs: VocabularyMap
) -> Candidates | None:
    """A level as a policy asks for it: all rows of one forward, ranked far enough; else None."""
    rows, k = places[0][0], query.k
    if any(query.exclude) or k > rows.top_tokens.shape[1]:
        return None
    if any(found is not rows for found, _ in places):
        return None
    where = [row for _, row in places]
    tokens, probs = outputs.to_target[rows.top_tokens[where, :k]], rows.top_probs[where, :k]
    if tokens.min(initial=0) < 0 or np.isnan(probs).any():
        return None
    with np.errstate(divide="ignore"):
        return Candidates(tokens, np.log(probs))


def _rank_one_by_one(query: Expand, places: Sequence[Place], outputs: VocabularyMap) -> Candidates:
    tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
    logq = np.full((len(query.nodes), query.k), -np.inf, dtype=np.float32)
    excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
    for i, ((rows, row), exclude) in enumerate(zip(places, excludes, strict=True)):
        best, probs = _ranked(rows, row, query.k + len(exclude))
        best = outputs.to_target[best]
        unknown = np.isnan(probs)  # a model that yields no numbers has nothing to say
        if exclude or best.min(initial=0) < 0 or unknown.any():
            best = np.where(unknown, -1, best)
            fine = [j for j, t in enumerate(best.tolist()) if t >= 0 and t not in exclude]
            best, probs = best[fine], probs[fine]
        count = min(query.k, len(best))
        tokens[i, :count] = best[:count]
        with np.errstate(divide="ignore"):
            np.log(probs[:count], out=logq[i, :count])
    return Candidates(tokens, logq)


def _ranked(rows: TargetOutput, row: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` likeliest outputs of a row, and their probabilities."""
    if k <= rows.top_tokens.shape[1]:
        return rows.top_tokens[row, :k], rows.top_probs[row, :k]
    # Asked about before, for fewer: rank this row again.
    shares = torch.softmax(rows.logits[row].float(), dim=-1)
    top = shares.topk(min(k, shares.shape[0]))
    return top.indices.cpu().numpy(), top.values.cpu().numpy()


def _tempered(
    query: Expand, places: Sequence[Place], picks: NDArray[np.int64], found: Candidates
) -> NDArray[np.float32]:
    """``logq`` of what was found, at the query's temperature."""
    scores = torch.stack([rows.logits[row] for rows, row in places]).float() / query.temperature
    chosen = torch.from_numpy(np.maximum(picks, 0)).to(scores.device)
    # HAND-OVER: m * k numbers.
    logq: NDArray[np.float32] = scores.log_softmax(dim=-1).gather(1, chosen).cpu().numpy()
    logq[found.tokens < 0] = -np.inf
    return logq
