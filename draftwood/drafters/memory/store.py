"""Remembered text, and how each of its passages was continued.

The text is one array of tokens, in pieces with gaps between them. A passage whose next token is
known already is counted and not stored again: prompts that hold earlier ones, as an agent's do,
do not fill the memory. A piece has some tokens before and behind what is new in it, so that a match
can be measured and copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.memory.passages import Passages
from draftwood.protocols import Continuation

LENGTHS = (12, 6, 3)
"""Lengths of the passages that are looked up, in tokens, longest first."""
MEASURED = 64
"""Longest match that is measured, in tokens."""
_VISITED = 8
"""Occurrences of a passage that are looked at, latest first."""
_BEFORE, _BEHIND = 32, 20
"""Tokens of a piece beside the new ones."""
_GAP, _OTHER = -1, -2
"""Stand for no token: between pieces, and before a short text that is looked up."""
_FIRST = 1 << 7
"""Positions for which there is room in an empty store."""


@dataclass
class _Offer:
    """Occurrences that are continued with one token."""

    place: int
    match: int
    count: int = 0
    agreeing: set[int] = field(default_factory=set)


class TextStore:
    """Remembered text.

    Attributes:
        starts: first position of each piece, ascending.
        used: for each piece, the time of its last use.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.used: list[int] = []
        self._size = MEASURED
        self._allocate(_FIRST)
        self._indexes = [Passages(length, _FIRST) for length in LENGTHS]

    def _allocate(self, capacity: int) -> None:
        """Make arrays for so many positions; what is not written is a gap."""
        self._text = np.full(capacity, _GAP, dtype=np.int32)
        self._seen = np.zeros(capacity, dtype=np.uint16)
        self._new = np.zeros(capacity, dtype=bool)
        # Reading from a memoryview takes half the time of reading from an array.
        self._tokens = memoryview(self._text.data)
        self._bytes = self._tokens.cast("B")

    @property
    def size(self) -> int:
        """Tokens and gaps that are stored."""
        return self._size - MEASURED

    @property
    def sizes(self) -> list[int]:
        """Tokens of each piece, and the gap behind it."""
        ends = [*self.starts[1:], self._size]
        return [end - start for start, end in zip(self.starts, ends, strict=False)]

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        own = sum(each.nbytes for each in (self._text, self._seen, self._new))
        return own + sum(index.bytes for index in self._indexes)

    def add(self, tokens: Sequence[int], now: int) -> list[Sequence[int]]:
        """Remember a text; returns the pieces that were stored."""
        given = np.asarray(tokens, dtype=np.int32)
        fresh = ~self._count(given, now)
        fresh[: min(LENGTHS)] = False  # no passage ends before them
        pieces = _pieces(fresh)
        room = sum(stop - start + 1 for start, stop in pieces)
        if self._size + room > len(self._text):
            self._grow(self._size + room)
        places = [self._append(given[a:b], fresh[a:b], now) for a, b in pieces]
        if places:
            self._index(np.concatenate(places))
        return [given[a:b].tolist() for a, b in pieces]

    def pieces(self) -> list[NDArray[np.int32]]:
        """Copies of the stored pieces, int32 ``[n]``."""
        text = self._text[: self._size].copy()
        return [
            text[start : start + size - 1]
            for start, size in zip(self.starts, self.sizes, strict=True)
        ]

    def _append(
        self, tokens: NDArray[np.int32], new: NDArray[np.bool_], now: int
    ) -> NDArray[np.int64]:
        """Store a piece and a gap behind it; returns the places of its new tokens."""
        start = self._size
        end = start + len(tokens)
        self.starts.append(start)
        self.used.append(now)
        self._text[start:end] = tokens
        self._seen[start:end] = 0
        self._new[start:end] = new
        self._size = end + 1
        self._text[end], self._new[end] = _GAP, False
        return start + np.flatnonzero(new)

    def _index(self, places: NDArray[np.int64]) -> None:
        """Add places to the index of each length of which there is a passage before them."""
        starts = np.array(self.starts)
        before = places - starts[np.searchsorted(starts, places, side="right") - 1]
        for index in self._indexes:
            index.add(self._text, places[before >= index.length])

    def _count(self, given: NDArray[np.int32], now: int) -> NDArray[np.bool_]:
        """Count tokens whose passage is remembered with them; returns which tokens those are."""
        index = self._indexes[0]
        length, n = index.length, len(given)
        known = np.zeros(n, dtype=bool)
        if n <= length:
            return known
        places = np.arange(length, n)
        there = index.latest(index.slots(given, places))
        found: list[NDArray[np.int64]] = []
        for _ in range(_VISITED):
            places, there = places[there >= 0], there[there >= 0]
            if not len(places):
                break
            same = self._text[there] == given[places]
            for back in range(1, length + 1):
                same &= self._text[there - back] == given[places - back]
            found.append(there[same])
            known[places[same]] = True
            places, there = places[~same], index.earlier(there[~same])
        if not found:
            return known
        counted = np.concatenate(found)
        self._seen[counted] = np.minimum(self._seen[counted], 65534) + 1
        # A passage that is remembered is remembered from its beginning.
        known[:length] = known[length]
        for piece in np.unique(np.searchsorted(self.starts, counted, side="right") - 1).tolist():
            self.used[piece] = now
        return known

    def _grow(self, needed: int) -> None:
        text, seen, new = self._text, self._seen, self._new
        self._allocate(max(needed, 2 * len(self._text)))
        written = slice(self._size)
        self._text[written], self._seen[written] = text[written], seen[written]
        self._new[written] = new[written]
        self._index_anew()

    def _index_anew(self) -> None:
        for index in self._indexes:
            index.clear(len(self._text))
        self._index(np.flatnonzero(self._new[: self._size]))

    def keep(self, kept: Iterable[bool]) -> None:
        """Forget the other pieces. Those that were used last count as the latest."""
        pieces = [
            (used, start, start + size)
            for used, start, size, keep in zip(
                self.used, self.starts, self.sizes, kept, strict=True
            )
            if keep
        ]
        text, seen, new = self._text, self._seen, self._new
        self.starts, self.used, self._size = [], [], MEASURED
        self._allocate(max(_FIRST, 2 * sum(end - start for _, start, end in pieces)))
        for used, start, end in sorted(pieces):
            stored = slice(start, end - 1)
            at = self._size
            self._append(text[stored], new[stored], used)
            self._seen[at : self._size - 1] = seen[stored]
        self._index_anew()

    def continuations(
        self, recent: Sequence[int], *, most: int, tokens: int, now: int
    ) -> tuple[Continuation, ...]:
        """How the end of a text was continued, preferred first: long matches, then frequent ones.

        Args:
            recent: the last tokens of the text, at least as many as are measured if it has them.
            most: continuations, with distinct first tokens.
            tokens: of a continuation.
            now: the time, which the pieces of the answer are used at.
        """
        offers = self._offers(recent)
        best = sorted(offers.items(), key=lambda each: (-each[1].match, -each[1].count))
        found = []
        for _, offer in islice(best, most):
            self.used[bisect_right(self.starts, offer.place) - 1] = now
            copied = self._tokens[offer.place : offer.place + tokens].tolist()
            if _GAP in copied:
                del copied[copied.index(_GAP) :]
            found.append(Continuation(tuple(copied), offer.match, offer.count, len(offer.agreeing)))
        return tuple(found)

    def _offers(self, recent: Sequence[int]) -> dict[int, _Offer]:
        """Occurrences of the text's last passages, by the next token."""
        recent = recent[-MEASURED:]
        padded = np.full(MEASURED, _OTHER, dtype=np.int32)
        padded[MEASURED - len(recent) :] = recent
        wanted = int.from_bytes(padded.tobytes(), "little")
        text, stored = self._tokens, self._bytes
        offers: dict[int, _Offer] = {}
        visited: set[int] = set()
        for index in self._indexes:
            if len(recent) < index.length:
                continue
            first = True
            for place in islice(index.places(recent), _VISITED):
                here = int.from_bytes(stored[4 * (place - MEASURED) : 4 * place], "little")
                # The tokens nearest to the place are the highest digits.
                match = MEASURED - -(-(wanted ^ here).bit_length() // 32)
                if match < index.length:
                    continue
                token = text[place]
                offer = offers.get(token)
                if offer is None:
                    offer = offers[token] = _Offer(place, match)
                elif match > offer.match:
                    offer.place, offer.match = place, match
                if place not in visited:
                    visited.add(place)
                    offer.count += 1 + int(self._seen[place])
                if first:
                    offer.agreeing.add(index.length)
                    first = False
        return offers


def _pieces(fresh: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Ranges around the new tokens of a text, which do not meet."""
    new = np.flatnonzero(fresh)
    if not len(new):
        return []
    breaks = np.flatnonzero(np.diff(new) > _BEFORE + _BEHIND + 1)
    starts = new[np.concatenate([[0], breaks + 1])]
    stops = new[np.concatenate([breaks, [len(new) - 1]])]
    return [
        (max(0, start - _BEFORE), min(len(fresh), stop + 1 + _BEHIND))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
