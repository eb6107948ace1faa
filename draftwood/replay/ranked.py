"""Rows of ranked tokens by key: what somebody finds likeliest after some paths.

Grows without copying on every row. Knows nothing of what the keys and values mean.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NO_TOKEN = -1


class Ranked:
    """Rows of at most ``width`` tokens with a value each, likeliest first.

    Args:
        width: columns.
        keys: of the rows, in order, each once.
        asked: how many tokens each row was asked for; a row with fewer has all there are.
        tokens: int32 ``[n, width]``, :data:`NO_TOKEN` where there is none.
        values: float32 ``[n, width]``.
    """

    def __init__(
        self,
        width: int,
        keys: Sequence[int] = (),
        asked: Sequence[int] = (),
        tokens: NDArray[np.int32] | None = None,
        values: NDArray[np.float32] | None = None,
    ) -> None:
        self.keys = list(keys)
        self.asked = list(asked)
        self._tokens = np.empty((0, width), dtype=np.int32) if tokens is None else tokens
        self._values = np.empty((0, width), dtype=np.float32) if values is None else values

    @cached_property
    def places(self) -> dict[int, int]:
        """Where the row of each key is."""
        return {key: place for place, key in enumerate(self.keys)}

    @property
    def width(self) -> int:
        """Columns."""
        return int(self._tokens.shape[1])

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All rows' tokens."""
        return self._tokens[: len(self.keys)]

    @property
    def values(self) -> NDArray[np.float32]:
        """All rows' values."""
        return self._values[: len(self.keys)]

    def __len__(self) -> int:
        return len(self.keys)

    def put(
        self,
        keys: Sequence[int],
        asked: int,
        tokens: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> None:
        """Keep rows ``[n, k]``; a row that is there and was asked for as much stays as it is."""
        k = tokens.shape[1]
        self._widen(k)
        places = self.places
        for i, key in enumerate(keys):
            place = places.get(key)
            if place is None:
                place = places[key] = len(self.keys)
                self.keys.append(key)
                self.asked.append(asked)
                if place == len(self._tokens):
                    self._lengthen()
            elif self.asked[place] >= asked:
                continue
            self.asked[place] = asked
            self._tokens[place, :k], self._tokens[place, k:] = tokens[i], NO_TOKEN
            self._values[place, :k], self._values[place, k:] = values[i], -np.inf

    def take(self, places: Sequence[int], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The first ``k`` columns of some rows: int64 and float32 ``[n, k]``, copies."""
        where = np.array(places, dtype=np.int64)
        tokens, values = self._tokens.take(where, axis=0), self._values.take(where, axis=0)
        return tokens[:, :k].astype(np.int64), values[:, :k]

    def _widen(self, width: int) -> None:
        more = width - self.width
        if more > 0:
            pad = ((0, 0), (0, more))
            self._tokens = np.pad(self._tokens, pad, constant_values=NO_TOKEN)
            self._values = np.pad(self._values, pad, constant_values=-np.inf)

    def _lengthen(self) -> None:
        rows = max(64, len(self._tokens) // 2)
        self._tokens = np.concatenate((self._tokens, np.empty((rows, self.width), dtype=np.int32)))
        self._values = np.concatenate(
            (self._values, np.empty((rows, self.width), dtype=np.float32))
        )
