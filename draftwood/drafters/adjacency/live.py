"""The live table: what the target said last after each pair of tokens, or each token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A pair is keyed by one integer: the token before in the high bits, the token in the low ones.
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1


class LiveTable:
    """Rows in arrays, found through dictionaries; the rows form a ring buffer.

    Args:
        max_rows: most keys stored.
        width: successors of a key.
        least: least probability of a successor, above 0.
        bigram: whether the keys are pairs of tokens.
    """

    __slots__ = ("_bigram", "_keys", "_latest", "_least", "_logq", "_next", "_rows", "_tokens")

    def __init__(self, max_rows: int, width: int, least: float, *, bigram: bool) -> None:
        self._bigram = bigram
        self._least = least
        # One further row stays empty: the row of unknown keys.
        self._tokens = np.empty((max_rows + 1, width), dtype=np.int32)
        self._logq = np.empty((max_rows + 1, width), dtype=np.float32)
        self._tokens[-1] = -1
        self._logq[-1] = -np.inf
        self._rows: dict[int, int] = {}
        self._latest: dict[int, int] = {} if bigram else self._rows
        self._keys: list[int] = []
        self._next = 0

    @property
    def bigram(self) -> bool:
        """Whether the keys are pairs of tokens."""
        return self._bigram

    @property
    def width(self) -> int:
        """Successors of a key."""
        return self._tokens.shape[1]

    @property
    def least_logq(self) -> float:
        """Natural log of the least probability of a successor."""
        return math.log(self._least)

    @property
    def empty_row(self) -> int:
        """The row of unknown keys."""
        return len(self._tokens) - 1

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

    def find(self, before: Sequence[int], tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """The row of each pair, or else the one of its token that was stored last.

        Returns:
            The row of each pair, and the numbers of the pairs that have no row of their own.
        """
        rows, latest, bigram, empty = self._rows, self._latest, self._bigram, self.empty_row
        places, unknown = [], []
        for i, (high, token) in enumerate(zip(before, tokens, strict=True)):
            row = rows.get(high << _SHIFT | token if bigram else token)
            if row is None:
                unknown.append(i)
                row = latest.get(token, empty)
            places.append(row)
        return places, unknown

    def successors(self, rows: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Copies of the rows: tokens and natural logs of their probabilities, ``[n, width]``."""
        where = np.array(rows, dtype=np.int64)
        return self._tokens.take(where, axis=0), self._logq.take(where, axis=0)
