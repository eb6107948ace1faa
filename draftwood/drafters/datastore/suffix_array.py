"""Text that is indexed by a suffix array, and the occurrences of a passage in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST = 16
"""Longest passage that is looked up, in tokens."""

DEEPEST = 16
"""Longest continuation, in tokens."""

_DOUBLINGS = 5
"""Places are sorted by the ``2**5`` tokens from there on: a passage and its continuation."""

_LOOKED_AT = 4096
"""Most occurrences of a passage that are looked at, evenly spaced in the order of what follows."""

_GAP = -1
"""Stands between texts and behind the last one."""


@dataclass(frozen=True, eq=False)
class Occurrences:
    """What followed the occurrences of a passage.

    Attributes:
        match: tokens of the passage.
        text: int32, of the datastore.
        places: int64 ``[n]``, where each one's continuation begins, sorted by it.
    """

    match: int
    text: NDArray[np.int32]
    places: NDArray[np.int64]

    def narrowed(self, begin: int, end: int, depth: int, token: int) -> tuple[int, int]:
        """The occurrences among those from ``begin`` to ``end`` that go on with a token.

        Those have the first ``depth`` tokens of their continuations in common.
        """
        if depth >= DEEPEST:
            return begin, begin
        column = self.text[self.places[begin:end] + depth]
        first, last = np.searchsorted(column, (token, token + 1)).tolist()
        return begin + first, begin + last

    def successors(
        self, begin: int, end: int, depth: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The tokens that follow those occurrences, and their counts, most frequent first."""
        if depth >= DEEPEST:
            end = begin
        column = self.text[self.places[begin:end] + depth]
        column = column[column != _GAP]
        starts = np.flatnonzero(np.diff(column, prepend=_GAP))
        counts = np.diff(starts, append=len(column))
        order = np.argsort(-counts, kind="stable")
        return column[starts][order], counts[order]


class Datastore:
    """Texts, and a suffix array of their tokens.

    Args:
        texts: token ids of each; no passage goes from one to the next.

    Attributes:
        tokens: of all texts.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        parts: list[NDArray[np.int32]] = []
        for each in texts:
            parts += [np.asarray(each, dtype=np.int32), np.full(1, _GAP, dtype=np.int32)]
        self.tokens = sum(map(len, parts)) - len(parts) // 2
        behind = np.full(LONGEST + DEEPEST, _GAP, dtype=np.int32)
        self._text = np.concatenate([*parts, behind])
        places = np.flatnonzero(self._text != _GAP)
        self._places = _sorted(self._text)[len(self._text) - len(places) :]
        # Reading from a memoryview takes half the time of reading from an array.
        self._numbers, self._order = memoryview(self._text.data), memoryview(self._places.data)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return self._text.nbytes + self._places.nbytes

    def find(self, recent: Sequence[int], longest: int) -> Occurrences:
        """The occurrences of the longest suffix of a text that is continued somewhere.

        Args:
            recent: the last tokens of the text.
            longest: tokens of a suffix, at most :data:`LONGEST`.
        """
        # A suffix of what occurs occurs as well.
        known, beyond = 0, min(longest, len(recent)) + 1
        begin = end = 0
        while known + 1 < beyond:
            length = (known + beyond) // 2
            first, last = self._range(list(recent[-length:]))
            if first < last:
                known, begin, end = length, first, last
            else:
                beyond = length
        places = self._places[begin:end]
        if len(places) > _LOOKED_AT:
            places = places[np.arange(_LOOKED_AT) * len(places) // _LOOKED_AT]
        return Occurrences(known, self._text, places.astype(np.int64) + known)

    def _range(self, passage: list[int]) -> tuple[int, int]:
        """The part of the suffix array whose suffixes are the passage and a further token."""
        numbers, order, length = self._numbers, self._order, len(passage)

        def after(place: int) -> list[int]:
            return numbers[place : place + length + 1].tolist()

        def at(place: int) -> list[int]:
            return numbers[place : place + length].tolist()

        first = bisect_right(order, [*passage, _GAP], key=after)
        return first, bisect_right(order, passage, lo=first, key=at)


def _sorted(text: NDArray[np.int32]) -> NDArray[np.int32]:
    """All places of a text, sorted by the ``2**_DOUBLINGS`` tokens from there on.

    By prefix doubling (Manber and Myers, 1993): what is sorted by n tokens is sorted by 2 n as the
    pairs of the ranks here and n tokens later.
    """
    order, ranks = _ranked(text)
    width = 1
    for _ in range(_DOUBLINGS):
        if ranks.max(initial=0) + 1 == len(ranks):
            break
        keys = (ranks + 1) * (len(ranks) + 1)
        keys[:-width] += ranks[width:] + 1
        order, ranks = _ranked(keys)
        width *= 2
    return order.astype(np.int32)


def _ranked(
    keys: NDArray[np.int32] | NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of some keys, and the rank of each among the distinct ones, from 0."""
    order = np.argsort(keys, kind="stable")
    found = keys[order]
    ranks = np.zeros(len(keys), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(found[1:] != found[:-1])
    return order, ranks
