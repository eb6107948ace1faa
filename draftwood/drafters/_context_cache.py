"""The keys and values that a drafter keeps of a request's committed text."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

KeysValues: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values ``[kv heads, n, d]`` of consecutive positions, in one layer."""

GROWTH = 1.25
"""How much longer a buffer becomes at least when it is full."""

_MAX_FEATURES = 64
"""Most positions whose features wait to be read: they take more memory than keys and values."""


class ContextCache:
    """Keys and values of the true positions so far, in every layer.

    They come from the target's features, which wait until the keys and values are asked for, unless
    these are many.

    Args:
        read: the keys and values of each layer for features ``[n, F]`` and their first position.
    """

    def __init__(self, read: Callable[[Tensor, int], Sequence[KeysValues]]) -> None:
        self._read = read
        self._stored: list[KeysValues] = []
        self._filled = 0
        self._waiting: list[Tensor] = []

    @property
    def length(self) -> int:
        """Positions so far, which is also the next one."""
        return self._filled + sum(map(len, self._waiting))

    def append(self, features: Tensor) -> None:
        """Append positions by their features, ``[n, F]``, which wait.

        A tensor that they are part of stays alive: that of a step is small enough.
        """
        self._waiting.append(features)
        if sum(map(len, self._waiting)) > _MAX_FEATURES:
            self._fill()

    def layers(self) -> list[KeysValues]:
        """Keys and values ``[kv heads, length, d]`` of each layer; there is a position."""
        self._fill()
        end = self._filled
        return [(keys[:, :end], values[:, :end]) for keys, values in self._stored]

    def _fill(self) -> None:
        """Take keys and values from the features that wait."""
        if not self._waiting:
            return
        with torch.inference_mode():
            read = self._read(torch.cat(self._waiting), self._filled)
            if not self._stored:
                self._stored = [(keys[:, :0], values[:, :0]) for keys, values in read]
            # Layer by layer, so that one layer's old buffers are alive beside the new ones.
            for layer, new in enumerate(read):
                keys, values = self._stored[layer]
                self._stored[layer] = (
                    _appended(keys, new[0], self._filled),
                    _appended(values, new[1], self._filled),
                )
        self._filled = self.length
        self._waiting.clear()


def _appended(stored: Tensor, new: Tensor, length: int) -> Tensor:
    """The buffer with new columns behind the first ``length``, in a longer one if needed."""
    end = length + new.shape[1]
    if end > stored.shape[1]:
        grown = new.new_empty(new.shape[0], max(int(GROWTH * length), end), new.shape[2])
        grown[:, :length] = stored[:, :length]
        stored = grown
    stored[:, length:end] = new
    return stored
