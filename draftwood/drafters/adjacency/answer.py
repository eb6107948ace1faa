"""Answers to queries: rows of the live tables and of the prepared one, averaged or alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.live import LiveTable
from draftwood.drafters.adjacency.mean import Rows, mean
from draftwood.drafters.adjacency.rows import fitted, pairs_of
from draftwood.drafters.adjacency.table import UNKNOWN, PreparedTable
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw


def answers(
    queries: Sequence[Expand],
    before_anchors: Sequence[int],
    lives: Sequence[LiveTable],
    prepared: PreparedTable | None,
) -> list[Candidates]:
    """The best known successors of each node of each query.

    The live row of a pair wins. A pair without one uses the mean of two rows, or the one of them
    that there is: the live row of its token that was stored last, and the prepared row of the pair,
    or else of the token. So does every token of a live table without pairs. The rows of all queries
    are computed together, as an array of one row costs as much as one of many.

    Args:
        queries: see :class:`draftwood.protocols.Expand`.
        before_anchors: the token before each tree's root.
        lives: what each request has taught, of equal widths and least probabilities.
        prepared: what the target said after other text, if there is a table.

    Raises:
        DraftwoodError: a query asks for sampled children.
    """
    if any(query.draw is not Draw.ONE_HOT for query in queries):
        raise DraftwoodError(
            "the adjacency table only ranks successors; ask it for one-hot children"
        )
    if not queries:
        return []
    before: list[int] = []
    tokens: list[int] = []
    averaged: list[int] = []
    latest: list[Rows] = []
    ends: list[int] = []
    for query, anchor, live in zip(queries, before_anchors, lives, strict=True):
        start, pairs = len(tokens), pairs_of(query.tree, query.nodes, anchor)
        before += pairs[0]
        tokens += pairs[1]
        rows, unknown = live.find(*pairs)
        latest.append(live.successors(rows))
        if live.bigram:
            averaged += [start + i for i in unknown]
        else:
            averaged += range(start, len(tokens))
        ends.append(len(tokens))
    best, logq = (np.concatenate(column) for column in zip(*latest, strict=True))
    if prepared is not None and averaged:
        keys = [before[i] for i in averaged], [tokens[i] for i in averaged]
        own = best[averaged], logq[averaged]
        best[averaged], logq[averaged] = _averaged(own, prepared, *keys, lives[0])
    best = best.astype(np.int64)
    found = []
    for query, start, end in zip(queries, [0, *ends], ends, strict=False):
        part = best[start:end], logq[start:end]
        if any(query.exclude):
            _drop_excluded(*part, query.exclude)
        found.append(Candidates(fitted(part[0], query.k, -1), fitted(part[1], query.k, -np.inf)))
    return found


def _averaged(
    latest: Rows,
    prepared: PreparedTable,
    before: Sequence[int],
    tokens: Sequence[int],
    live: LiveTable,
) -> Rows:
    """The mean of the live rows of tokens and the prepared rows of their pairs or of themselves."""
    pairs, singles = prepared.find(before, tokens)
    places = np.where(pairs == UNKNOWN, singles, pairs)
    found, logq = mean(latest, prepared.successors(places, live.width))
    below = logq < live.least_logq
    found[below], logq[below] = -1, -np.inf
    return found, logq


def _drop_excluded(
    tokens: NDArray[np.int64], logq: NDArray[np.float32], exclude: Sequence[frozenset[int]]
) -> None:
    """Close the gaps that excluded tokens leave, in place."""
    for i, banned in enumerate(exclude):
        if banned:
            allowed = np.flatnonzero([token not in banned for token in tokens[i].tolist()])
            for row, empty in ((tokens[i], -1), (logq[i], -np.inf)):
                row[: len(allowed)] = row[allowed]
                row[len(allowed) :] = empty
