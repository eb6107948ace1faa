"""The adjacency table: the target's own top-k successors of a token or a pair of tokens.

Source: GOOSE, Sections 4.1 and C.1 (two-tier table, aggressive harvesting). With ``bigram=False``
it is the table of Token Recycling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    Candidates,
    Drafter,
    DrafterSpec,
    Expand,
    Host,
    Needs,
    Outcome,
    Prefill,
    setting,
)
from draftwood.tree import Draw

_Number = TypeVar("_Number", np.int32, np.float32)

# A pair is keyed by one integer: the token before in the high bits, the token in the low ones.
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1
_NO_TOKEN = -1  # stands before the first token of a prompt


@dataclass(frozen=True)
class Adjacency(DrafterSpec):
    """Settings of the adjacency table (GOOSE, Table 5).

    Raises:
        DraftwoodError: a setting outside its range.
    """

    width: int = setting(10, "successors stored per key (K)", least=1)
    min_score: float = setting(
        0.01, "least probability a successor needs to be offered", least=0, below=1
    )
    bigram: bool = setting(True, "look up the last two tokens first; off: the last token only")
    shared: bool = setting(
        False, "one table for all requests of an engine, not emptied between them"
    )
    max_rows: int = setting(65536, "most keys stored; the oldest is dropped first", least=1)
    harvest: Literal["all", "accepted"] = setting(
        "all", "learn from every node of a tree, or from the accepted ones only"
    )

    def build(self, host: Host) -> AdjacencyTables:
        """Fresh, empty tables; ``width`` is cut to the target's vocabulary."""
        return AdjacencyTables(self, min(self.width, host.info.vocab_size))


class AdjacencyTables(Drafter):
    """Successors of pairs of tokens, in a table per slot or one table for all slots.

    The top-k of every row of the target's logits is stored: prompt positions, accepted nodes, the
    node of the bonus, and rejected nodes. A node's row gives the successors of its pair (its
    parent's token, its token); the root's parent is the token before the anchor. A new row replaces
    the pair's earlier one; of equal pairs in one step the last node counts. A successor's score is
    its softmax probability; successors below ``min_score`` are dropped.

    A token without a known pair uses the pair ending in it that was stored last, which is what a
    separate unigram table would hold. A known pair without successors gives no candidates. With
    ``max_rows`` pairs, a new pair replaces the oldest, and a token whose last pair this was is
    forgotten too.

    Memory: at most ``max_rows * (8 * width + 352)`` bytes per table and one row: 28 MB at the
    default settings, of which 5 MB are rows. Memory pages are touched only as rows are stored.
    """

    def __init__(self, settings: Adjacency, width: int) -> None:
        self._settings = settings
        self._width = width
        self._tables: dict[int, _Table] = {}
        self._shared = _Table(settings, width) if settings.shared else None
        self._before: dict[int, int] = {}

    @property
    def needs(self) -> Needs:
        """The ``width`` best tokens of every row, the prompt's included."""
        return Needs(top_k=self._width, prompt_rows=True)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Store the successors at the prompt's positions, as far as the target computed them."""
        table = self._shared or _Table(self._settings, self._width)
        self._tables[slot] = table
        prompt, rows = prefill.prompt.tolist(), prefill.rows
        first = len(prompt) - len(rows.top_tokens)
        before = [_NO_TOKEN, *prompt[:-1]]
        table.harvest(before[first:], prompt[first:], rows.top_tokens, rows.top_probs)
        self._before[slot] = prompt[-1]

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Store the successors at the tree's nodes."""
        tokens = outcome.tree.tokens.tolist()
        before = [tokens[parent] for parent in outcome.tree.parents.tolist()]
        before[0] = self._before[slot]
        best, probs = outcome.rows.top_tokens, outcome.rows.top_probs
        if self._settings.harvest == "accepted":
            stored = [0, *outcome.path]
            tokens = [tokens[node] for node in stored]
            before = [before[node] for node in stored]
            best, probs = best[stored], probs[stored]
        self._tables[slot].harvest(before, tokens, best, probs)
        self._before[slot] = (tokens[0], *outcome.committed)[-2]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` best known successors of each node, by its pair or else by its token.

        Raises:
            DraftwoodError: a query asks for sampled children.
        """
        return [
            self._tables[slot].successors(query, self._before[slot])
            for slot, query in zip(slots, queries, strict=True)
        ]

    def release(self, slot: int) -> None:
        """Forget the slot's table, unless it is shared."""
        self._tables.pop(slot, None)
        self._before.pop(slot, None)


class _Table:
    """Rows in arrays, found through dictionaries; the rows form a ring buffer."""

    __slots__ = ("_bigram", "_keys", "_latest", "_least", "_logq", "_next", "_rows", "_tokens")

    def __init__(self, settings: Adjacency, width: int) -> None:
        self._bigram = settings.bigram
        self._least = max(settings.min_score, float(np.finfo(np.float32).tiny))
        # One further row stays empty: the row of unknown keys.
        self._tokens = np.empty((settings.max_rows + 1, width), dtype=np.int32)
        self._logq = np.empty((settings.max_rows + 1, width), dtype=np.float32)
        self._tokens[-1] = -1
        self._logq[-1] = -np.inf
        self._rows: dict[int, int] = {}
        self._latest: dict[int, int] = {} if settings.bigram else self._rows
        self._keys: list[int] = []
        self._next = 0

    def harvest(
        self,
        before: list[int],
        tokens: list[int],
        top_tokens: NDArray[np.int64],
        top_probs: NDArray[np.float32],
    ) -> None:
        """Store each row as the successors of its pair (before, token)."""
        keys = tokens
        if self._bigram:
            keys = [high << _SHIFT | low for high, low in zip(before, tokens, strict=True)]
        rows, latest, places = self._rows, self._latest, []
        for key, token in zip(keys, tokens, strict=True):
            row = rows.get(key)
            if row is None:
                row = self._place(key)
            latest[token] = row
            places.append(row)
        width = self._tokens.shape[1]
        probs = top_probs[:, :width]
        offered = probs >= self._least
        logq = np.full(probs.shape, -np.inf, dtype=np.float32)
        np.log(probs, out=logq, where=offered)
        # If an index repeats, NumPy keeps the last assignment, like a loop over the nodes.
        where = np.array(places, dtype=np.int64)
        self._tokens[where] = np.where(offered, top_tokens[:, :width], -1)
        self._logq[where] = logq

    def _place(self, key: int) -> int:
        row = self._next
        if row < len(self._keys):
            oldest = self._keys[row]
            del self._rows[oldest]
            if self._latest.get(oldest & _LOW) == row:
                del self._latest[oldest & _LOW]
            self._keys[row] = key
        else:
            self._keys.append(key)
        self._rows[key] = row
        self._next = (row + 1) % (len(self._tokens) - 1)
        return row

    def successors(self, query: Expand, before_anchor: int) -> Candidates:
        """See :meth:`AdjacencyTables.expand`."""
        if query.draw is not Draw.ONE_HOT:
            raise DraftwoodError(
                "the adjacency table only ranks successors; ask it for one-hot children"
            )
        tokens, parents = query.tree.tokens, query.tree.parents
        rows, latest, bigram = self._rows, self._latest, self._bigram
        nothing = len(self._tokens) - 1
        places = []
        for node in query.nodes:
            token = tokens[node]
            row = None
            if bigram:
                parent = parents[node]
                row = rows.get((tokens[parent] if parent >= 0 else before_anchor) << _SHIFT | token)
            places.append(latest.get(token, nothing) if row is None else row)
        where = np.array(places, dtype=np.int64)
        best, logq = self._tokens.take(where, axis=0), self._logq.take(where, axis=0)
        if any(query.exclude):
            _drop_excluded(best, logq, query.exclude)
        return Candidates(_fit(best, query.k, -1).astype(np.int64), _fit(logq, query.k, -np.inf))


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


PART = Adjacency
