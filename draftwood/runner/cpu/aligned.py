"""Weights moved into large pages and to the beginning of a cache line, for the compiled products.

A step reads all weights. In pages of 4 KB the processor looks up an address every 64 cache lines,
and stops fetching ahead. Linux gives pages of 2 MB to programs that ask, and NumPy asks for arrays
of 4 MB and more. A weight is often smaller, so weights of one shape lie in an array together: they
get the same layout, so they leave the array together. In a mapped file the weights lie behind a
header of any length, and nearly every vector of a weight lies in two cache lines.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

LINE = 64
"""Bytes of a cache line, and of the widest vector."""

_MOST = 1 << 26
"""Most bytes of an array of several weights: its memory is free when the last of them is."""

_arrays: dict[int, int] = {}
"""Begin and end of each array of weights."""


def align(weights: Iterable[torch.Tensor], others: Iterable[torch.Tensor] = ()) -> int:
    """Move weights into large pages, bit for bit; returns the bytes that were moved.

    Those that were moved before stay, and those whose memory is another tensor's of these too, or
    shared with another process. Tensors that are not given keep the old memory.

    Args:
        weights: contiguous, on the CPU; tied ones may come several times.
        others: further plain tensors of the model.
    """
    different = {id(weight): weight for weight in weights}
    every = different | {id(other): other for other in others}
    users = Counter(each.untyped_storage().data_ptr() for each in every.values())
    # A copy, which is made at once: while items are read, another model may be freed.
    arrays = _arrays.copy()
    by_shape: defaultdict[object, list[torch.Tensor]] = defaultdict(list)
    for weight in different.values():
        place = weight.data_ptr()
        alone = users[weight.untyped_storage().data_ptr()] == 1
        there = any(begin <= place < end for begin, end in arrays.items())
        if alone and _owns(weight) and not there:
            by_shape[weight.shape, weight.dtype].append(weight)
    moved = 0
    for alike in by_shape.values():
        for some in _parts(alike):
            _move(some)
            moved += sum(weight.nbytes for weight in some)
    return moved


class Pages:
    """Gives out memory in large pages, one piece behind the other.

    An array is free when all pieces of it are.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._array: Callable[[], NDArray[np.uint8] | None] = lambda: None
        self._begin = self._end = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        """Bytes that begin at a cache line."""
        with self._lock:
            array = self._array()
            if array is None or self._begin + size > self._end:
                given = zeros(max(size, _MOST))
                array = given.base
                assert array is not None
                self._array = weakref.ref(array)
                self._begin = given.ctypes.data - array.ctypes.data
                self._end = self._begin + given.size
            found = array[self._begin : self._begin + size]
            self._begin += -(-size // LINE) * LINE
            return found


def zeros(size: int) -> NDArray[np.uint8]:
    """Bytes that begin at a cache line, in large pages if they are many."""
    found = np.zeros(size + LINE, dtype=np.uint8)
    begin = -found.ctypes.data % LINE
    return found[begin : begin + size]


def _move(weights: Sequence[torch.Tensor]) -> None:
    """Move weights into one array."""
    place, sizes = 0, [-(-weight.nbytes // LINE) * LINE for weight in weights]
    array = zeros(sum(sizes))
    begin = array.ctypes.data
    _arrays[begin] = begin + array.nbytes
    # Weights keep what the array is a part of.
    weakref.finalize(array.base, _arrays.pop, begin).atexit = False
    for weight, size in zip(weights, sizes, strict=True):
        with torch.inference_mode(False), torch.no_grad():
            own = torch.from_numpy(array[place : place + weight.nbytes])
            weight.data = own.view(weight.dtype).view(weight.shape).copy_(weight)
        place += size


def _parts(weights: Sequence[torch.Tensor]) -> Iterator[Sequence[torch.Tensor]]:
    """Weights of one size that come into one array."""
    each = max(1, _MOST // max(1, weights[0].nbytes))
    for begin in range(0, len(weights), each):
        yield weights[begin : begin + each]


def _owns(weight: torch.Tensor) -> bool:
    """Whether nothing else is in a weight's memory."""
    storage = weight.untyped_storage()
    return storage.nbytes() == weight.nbytes and not storage.is_shared()
