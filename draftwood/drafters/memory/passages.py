"""Where passages of one length ended in a growing text, latest first.

One hash table holds the latest place of each hash, and one array for each place the one before it
with the same hash. So a place costs eight bytes and is added in constant time. Whoever reads the
places compares the tokens: different passages may have one hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER = 0x9E3779B97F4A7C15
"""Odd; of it, powers are taken modulo 2**64."""
_WORD = (1 << 64) - 1


class Passages:
    """An index of passages of ``length`` tokens.

    A *place* is the position of the token that continues a passage.

    Args:
        length: tokens of a passage.
        capacity: places below this can be added; see :meth:`clear`.
    """

    def __init__(self, length: int, capacity: int) -> None:
        self.length = length
        self._powers = [pow(_MULTIPLIER, i + 1, 1 << 64) for i in range(length)]
        self.clear(capacity)

    def clear(self, capacity: int) -> None:
        """Forget all places; from now on those below ``capacity`` can be added."""
        bits = (capacity - 1).bit_length() + 1  # so that few passages share a slot
        self._shift = 64 - bits
        self._latest = np.full(1 << bits, -1, dtype=np.int32)
        self._before = np.full(capacity, -1, dtype=np.int32)
        # Reading one number of a memoryview takes half the time of an array's.
        self._views = memoryview(self._latest.data), memoryview(self._before.data)

    @property
    def bytes(self) -> int:
        """Memory of the index."""
        return self._latest.nbytes + self._before.nbytes

    def slots(self, text: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of the passage before each place; all of it must be in the text."""
        found = np.zeros(len(places), dtype=np.uint64)
        for back, power in enumerate(self._powers, start=1):
            found += text[places - back].astype(np.uint64) * np.uint64(power)
        return (found >> np.uint64(self._shift)).astype(np.int64)

    def latest(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The latest place of each slot, -1 if it has none."""
        return self._latest[slots].astype(np.int64)

    def earlier(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place before each one with the same slot, -1 if there is none."""
        return self._before[places].astype(np.int64)

    def add(self, text: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        """Add places, ascending and beyond those that were added before."""
        slots = self.slots(text, places)
        order = np.argsort(slots, kind="stable")
        slots, places = slots[order], places[order]
        first = np.ones(len(slots), dtype=bool)
        first[1:] = slots[1:] != slots[:-1]
        earlier = np.empty(len(places), dtype=np.int64)
        earlier[1:] = places[:-1]
        earlier[first] = self._latest[slots[first]]
        self._before[places] = earlier
        last = np.roll(first, -1)
        self._latest[slots[last]] = places[last]

    def places(self, recent: Sequence[int]) -> Iterator[int]:
        """Places whose passage may be the last tokens of ``recent``, latest first."""
        latest, before = self._views
        key = 0
        for token, power in zip(reversed(recent), self._powers, strict=False):
            key += token * power
        place = latest[(key & _WORD) >> self._shift]
        while place >= 0:
            yield place
            place = before[place]
