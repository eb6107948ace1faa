"""The live table: what the target said last after each pair of tokens, or each token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.native import NativeRows, functions
from draftwood.drafters.adjacency.rows import PlainRows, RowArrays, Waiting

_MOST_WAITING = 64
"""Rows that wait to be stored at most."""


class LiveTable:
    """Rows in arrays, found through an index of their keys; the rows form a ring buffer.

    New rows wait until the table is asked, or are many: storing several at once takes hardly longer
    than storing one, and most steps of a large batch do not ask.

    Args:
        max_rows: most keys stored.
        width: successors of a key.
        least: least probability of a successor, above 0.
        bigram: whether the keys are pairs of tokens.
        plain: find and store rows by Python even where compiled functions do it.
    """

    __slots__ = ("_arrays", "_rows", "_waiting", "_waits")

    def __init__(
        self, max_rows: int, width: int, least: float, *, bigram: bool, plain: bool = False
    ) -> None:
        # One further row stays empty: the row of unknown keys.
        tokens = np.empty((max_rows + 1, width), dtype=np.int32)
        logq = np.empty((max_rows + 1, width), dtype=np.float32)
        tokens[-1] = -1
        logq[-1] = -np.inf
        self._arrays = RowArrays(tokens, logq, least, bigram)
        native = None if plain else functions()
        self._rows: PlainRows | NativeRows = (
            PlainRows(self._arrays) if native is None else NativeRows(native, self._arrays)
        )
        self._waiting: list[Waiting] = []
        self._waits = 0  # number of these rows

    @property
    def bigram(self) -> bool:
        """Whether the keys are pairs of tokens."""
        return self._arrays.bigram

    @property
    def width(self) -> int:
        """Successors of a key."""
        found: int = self._arrays.tokens.shape[1]
        return found

    @property
    def least_logq(self) -> float:
        """Natural log of the least probability of a successor."""
        return math.log(self._arrays.least)

    def harvest(
        self,
        before: list[int],
        tokens: list[int],
        top_tokens: NDArray[np.int64],
        top_probs: NDArray[np.float32],
    ) -> None:
        """Store each row as the successors of its pair (before, token)."""
        self._waiting.append(Waiting(before, tokens, top_tokens, top_probs))
        self._waits += len(tokens)
        if self._waits > _MOST_WAITING:
            self._store()

    def _store(self) -> None:
        """Store the rows that wait, in their order."""
        waiting, self._waiting, self._waits = self._waiting, [], 0
        if waiting:
            self._rows.store(waiting)

    def find(self, before: Sequence[int], tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """The row of each pair, or else the one of its token that was stored last.

        Returns:
            The row of each pair, and the numbers of the pairs that have no row of their own.
        """
        self._store()
        return self._rows.find(before, tokens)

    @property
    def native(self) -> NativeRows | None:
        """The rows as compiled functions read them; None without a compiler."""
        self._store()
        return self._rows if isinstance(self._rows, NativeRows) else None

    def successors(self, rows: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Copies of the rows: tokens and natural logs of their probabilities, ``[n, width]``."""
        where, arrays = np.array(rows, dtype=np.int64), self._arrays
        return arrays.tokens.take(where, axis=0), arrays.logq.take(where, axis=0)
