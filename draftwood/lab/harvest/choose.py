"""Chooses the rows of a table: the pairs whose rows add most for the bytes that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.table import codes_of, key_dtype, token_dtype
from draftwood.lab.harvest.sums import UNIT, Sums

_LEADING = 4
"""Successors that decide what a row is worth: further ones are seldom drafted."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table, in any order of keys.

    Attributes:
        keys: see :mod:`draftwood.drafters.adjacency.table`; int64 ``[n]``.
        lengths: number of successors of each key, int64 ``[n]``.
        values: of each row, float64 ``[n]``: the probability of its best successors times its
            occurrences; of a pair, without what the row of its token alone has.
        tokens: successors, int64 ``[sum(lengths)]``.
        codes: of their probabilities, uint8 ``[sum(lengths)]``.
    """

    keys: NDArray[np.int64]
    lengths: NDArray[np.int64]
    values: NDArray[np.float64]
    tokens: NDArray[np.int64]
    codes: NDArray[np.uint8]

    def taken(self, rows: NDArray[np.int64]) -> Rows:
        """These rows, in this order."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        lengths = self.lengths[rows]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(starts[rows], lengths) + within
        return Rows(
            self.keys[rows], lengths, self.values[rows], self.tokens[places], self.codes[places]
        )


def rows_of(sums: Sums, vocab_size: int, *, width: int, min_score: float) -> Rows:
    """The rows of all pairs of some tokens, and of these tokens alone.

    Args:
        sums: with all pairs that end in these tokens.
        vocab_size: V.
        width: most successors of a key.
        min_score: least probability of a successor.
    """
    v = vocab_size
    singles = _Best(sums.rekeyed(sums.keys // (v + 1)), v, width, min_score)
    pairs = _Best(_only(sums, sums.keys % (v + 1) < v), v, width, min_score)
    tokens, before = np.divmod(pairs.sums.keys, v + 1)
    leading = singles.leading(singles.sums.keys)
    values = pairs.mass() - pairs.mass_of(leading, tokens)
    return joined(
        [
            pairs.rows(before * v + tokens, np.maximum(values, 0)),
            singles.rows(singles.sums.keys + v * v, singles.mass()),
        ]
    )


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows, one part after the other."""
    arrays = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Rows)}
    return Rows(**arrays)


def chosen(rows: Rows, vocab_size: int, max_bytes: int) -> Rows:
    """The rows of most value for each byte, in order of their keys.

    What is chosen of several parts, joined, is chosen of what is chosen of each part.

    Args:
        rows: to choose from.
        vocab_size: decides the bytes of keys and tokens.
        max_bytes: most bytes of the table.
    """
    entry = token_dtype(vocab_size).itemsize + 1
    sizes = key_dtype(vocab_size).itemsize + 1 + entry * rows.lengths
    order = np.lexsort((rows.keys, -rows.values / sizes))
    order = order[rows.values[order] > 0]
    kept = order[np.cumsum(sizes[order]) <= max_bytes]
    return rows.taken(kept[np.argsort(rows.keys[kept])])


class _Best:
    """The best successors of each key of some sums."""

    def __init__(self, sums: Sums, vocab_size: int, width: int, min_score: float) -> None:
        self.sums = sums
        self._vocab_size = vocab_size
        self._own = np.repeat(np.arange(len(sums.keys)), sums.lengths)
        self._probs = sums.sums / (UNIT * sums.counts[self._own].astype(np.float64))
        order = np.lexsort((sums.successors, -sums.sums, self._own))
        rank = np.arange(len(order)) - sums.starts[self._own[order]]
        offered = (rank < width) & (self._probs[order] >= max(min_score, 1 / UNIT))
        self._order, self._leads = order[offered], order[rank < _LEADING]

    def mass(self) -> NDArray[np.float64]:
        """Expected occurrences of the leading successors of each key."""
        return self._total(self._leads)

    def leading(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The leading successors, as ``key * V + successor``, ascending."""
        at = self._leads
        return np.sort(keys[self._own[at]] * self._vocab_size + self.sums.successors[at])

    def mass_of(self, leading: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Expected occurrences of the successors that lead after ``tokens``, one for each key."""
        codes = tokens[self._own] * self._vocab_size + self.sums.successors
        return self._total(np.flatnonzero(np.isin(codes, leading)))

    def rows(self, keys: NDArray[np.int64], values: NDArray[np.float64]) -> Rows:
        """The rows with these keys and values; those without a successor are left out."""
        lengths = np.bincount(self._own[self._order], minlength=len(keys))
        there = lengths > 0
        return Rows(
            keys[there],
            lengths[there],
            values[there],
            self.sums.successors[self._order].astype(np.int64),
            codes_of(self._probs[self._order]),
        )

    def _total(self, at: NDArray[np.int64]) -> NDArray[np.float64]:
        weights = self.sums.sums[at] / UNIT
        return np.bincount(self._own[at], weights, len(self.sums.keys)).astype(np.float64)


def _only(sums: Sums, kept: NDArray[np.bool_]) -> Sums:
    entries = np.repeat(kept, sums.lengths)
    parts: dict[str, NDArray[Any]] = {
        name: getattr(sums, name)[kept] for name in ("keys", "counts", "lengths")
    }
    return Sums(**parts, successors=sums.successors[entries], sums=sums.sums[entries])
