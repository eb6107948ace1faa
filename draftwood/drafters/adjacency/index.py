"""Which row of a live table belongs to a key; the plain twin of ``Index`` in index.h."""

from __future__ import annotations

from collections.abc import Sequence

# A pair is keyed by one integer: the token before in the high bits, the token in the low ones.
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1


class DictIndex:
    """Rows by key in dictionaries; the rows form a ring buffer.

    Args:
        most: rows at most.
        bigram: whether the keys are pairs of tokens.
    """

    def __init__(self, most: int, *, bigram: bool) -> None:
        self._most = most
        self._bigram = bigram
        self._rows: dict[int, int] = {}
        self._latest: dict[int, int] = {} if bigram else self._rows
        self._keys: list[int] = []
        self._next = 0

    def take(self, before: Sequence[int], tokens: Sequence[int]) -> list[int]:
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

    def find(
        self, before: Sequence[int], tokens: Sequence[int], empty: int
    ) -> tuple[list[int], list[int]]:
        """The row of each pair, or else the one of its token that was stored last, or ``empty``.

        Returns:
            The rows, and the numbers of the pairs that have none of their own.
        """
        rows, latest, bigram = self._rows, self._latest, self._bigram
        places, unknown = [], []
        for i, (high, token) in enumerate(zip(before, tokens, strict=True)):
            row = rows.get(high << _SHIFT | token if bigram else token)
            if row is None:
                unknown.append(i)
                row = latest.get(token, empty)
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
