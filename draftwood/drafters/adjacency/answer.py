"""The answer to a query: rows of the live table and of the prepared one, averaged or alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.live import LiveTable
from draftwood.drafters.adjacency.mean import Rows, mean
from draftwood.drafters.adjacency.table import UNKNOWN, PreparedTable
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw

_Number = TypeVar("_Number", np.int32, np.float32)


def answer(
    query: Expand, before_anchor: int, live: LiveTable, prepared: PreparedTable | None
) -> Candidates:
    """The best known successors of each node of a query.

    The live row of a pair wins. A pair without one uses the mean of two rows, or the one of them
    that there is: the live row of its token that was stored last, and the prepared row of the pair,
    or else of the token. So does every token of a live table without pairs.

    Args:
        query: see :class:`draftwood.protocols.Expand`.
        before_anchor: the token before the tree's root.
        live: what the request has taught.
        prepared: what the target said after other text, if there is a table.

    Raises:
        DraftwoodError: the query asks for sampled children.
    """
    if query.draw is not Draw.ONE_HOT:
        raise DraftwoodError(
            "the adjacency table only ranks successors; ask it for one-hot children"
        )
    every, parents = query.tree.tokens, query.tree.parents
    tokens = [every[node] for node in query.nodes]
    above = [parents[node] for node in query.nodes]
    before = [every[parent] if parent >= 0 else before_anchor for parent in above]
    rows, unknown = live.find(before, tokens)
    best, logq = live.successors(rows)
    averaged = unknown if live.bigram else list(range(len(tokens)))
    if prepared is not None and averaged:
        keys = [before[i] for i in averaged], [tokens[i] for i in averaged]
        latest = best[averaged], logq[averaged]
        best[averaged], logq[averaged] = _averaged(latest, prepared, *keys, live)
    if any(query.exclude):
        _drop_excluded(best, logq, query.exclude)
    return Candidates(_fit(best, query.k, -1).astype(np.int64), _fit(logq, query.k, -np.inf))


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
    tokens: NDArray[np.int32], logq: NDArray[np.float32], exclude: Sequence[frozenset[int]]
) -> None:
    """Close the gaps that excluded tokens leave, in place."""
    for i, banned in enumerate(exclude):
        if banned:
            allowed = np.flatnonzero([token not in banned for token in tokens[i].tolist()])
            for row, empty in ((tokens[i], -1), (logq[i], -np.inf)):
                row[: len(allowed)] = row[allowed]
                row[len(allowed) :] = empty


def _fit(rows: NDArray[_Number], k: int, empty: float) -> NDArray[_Number]:
    """Exactly ``k`` columns: the best ones, or all and ``empty`` ones."""
    missing = k - rows.shape[1]
    if missing == 0:
        return rows
    if missing < 0:
        return rows[:, :k]
    return np.pad(rows, ((0, 0), (0, missing)), constant_values=empty)
