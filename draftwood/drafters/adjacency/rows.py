"""Rows of a live table, found and stored by Python: the plain twin of the compiled functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.tree import TreeBuilder

# A pair is keyed by one integer: the token before in the high bits, the token in the low ones.
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1

_Number = TypeVar("_Number", np.int64, np.float32)


class RowArrays(NamedTuple):
    """The arrays of a live table, and what its rows hold.

    Attributes:
        tokens: successors of each key, ``[most + 1, width]``; the last row stays empty.
        logq: natural logs of their probabilities.
        least: least probability of a successor.
        bigram: whether the keys are pairs of tokens.
    """

    tokens: NDArray[np.int32]
    logq: NDArray[np.float32]
    least: float
    bigram: bool


class Waiting(NamedTuple):
    """Successors of pairs of tokens that wait to be stored.

    Attributes:
        before: the tokens before some tokens.
        tokens: these, ``[n]``.
        best: successors of each, likeliest first; ``[n, k]``.
        probabilities: of the successors.
    """

    before: list[int]
    tokens: list[int]
    best: NDArray[np.int64]
    probabilities: NDArray[np.float32]


def fitted(rows: NDArray[_Number], k: int, empty: float) -> NDArray[_Number]:
    """Exactly ``k`` columns: the best ones, or all and ``empty`` ones."""
    missing = k - rows.shape[1]
    if missing == 0:
        return rows
    if missing < 0:
        return rows[:, :k]
    return np.pad(rows, ((0, 0), (0, missing)), constant_values=empty)


def pairs_of(
    tree: TreeBuilder, nodes: Sequence[int], anchor_before: int
) -> tuple[list[int], list[int]]:
    """The token before each node of a tree, and its own; ``anchor_before`` is before the root's."""
    tokens, parents = tree.tokens, tree.parents
    before = [tokens[parents[node]] if node else anchor_before for node in nodes]
    return before, [tokens[node] for node in nodes]


class PlainRows:
    """Rows by key in dictionaries; the rows form a ring buffer.

    Args:
        arrays: of the table.
    """

    def __init__(self, arrays: RowArrays) -> None:
        self._tokens, self._logq, self._least, self._bigram = arrays
        self._most = len(arrays.tokens) - 1
        self._rows: dict[int, int] = {}
        self._latest: dict[int, int] = {} if arrays.bigram else self._rows
        self._keys: list[int] = []
        self._next = 0

    def store(self, waiting: Sequence[Waiting]) -> None:
        """Store successors in their order; of equal pairs the last ones stay."""
        places = [row for each in waiting for row in self._take(each.before, each.tokens)]
        width = self._tokens.shape[1]
        best = np.concatenate([fitted(each.best, width, -1) for each in waiting])
        probs = np.concatenate([fitted(each.probabilities, width, 0.0) for each in waiting])
        offered = probs >= self._least
        logq = np.full(probs.shape, -np.inf, dtype=np.float32)
        np.log(probs, out=logq, where=offered)
        # If an index repeats, NumPy keeps the last assignment, like a loop over the nodes.
        where = np.array(places, dtype=np.int64)
        self._tokens[where] = np.where(offered, best, -1)
        self._logq[where] = logq

    def _take(self, before: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The row of each pair; one that has none gets the oldest."""
        rows, latest, bigram, places = self._rows, self._latest, self._bigram, []
        for high, token in zip(before, tokens, strict=True):
            key = high << _SHIFT | token if bigram else token
            row = rows.get(key)
            if row is None:
                row = self._place(key)
            latest[token] = row
            places.append(row)
        return places

    def find(self, before: Sequence[int], tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """The row of each pair, or else the one of its token that was stored last.

        Returns:
            The rows, the empty one where there is neither, and the numbers of the pairs that have
            none of their own.
        """
        rows, latest, bigram = self._rows, self._latest, self._bigram
        places, unknown = [], []
        for i, (high, token) in enumerate(zip(before, tokens, strict=True)):
            row = rows.get(high << _SHIFT | token if bigram else token)
            if row is None:
                unknown.append(i)
                row = latest.get(token, self._most)
            places.append(row)
        return places, unknown

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
        self._next = (row + 1) % self._most
        return row
