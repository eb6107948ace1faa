"""Static buffers through which integers enter a forward: token ids, positions and cells.

They are filled as NumPy views and, where the model is elsewhere, copied over in one transfer from
pinned memory. Reusing them is safe because every forward of a tree ends in a hand-over, which waits
for the device. Knows nothing of what the numbers mean.
"""

import numpy as np
import torch
from numpy.typing import NDArray


class Staging:
    """``lanes`` int64 buffers side by side, as large as the largest forward so far."""

    def __init__(self, lanes: int, device: torch.device) -> None:
        self._lanes = lanes
        self._device = device
        self._capacity = 0
        self._size = 0
        self._grow(64)

    def _grow(self, size: int) -> None:
        self._capacity = max(size, 2 * self._capacity)
        total = self._lanes * self._capacity
        self._host = torch.zeros(total, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        self._numbers = self._host.numpy()
        on_host = self._device.type == "cpu"
        self._there = self._host if on_host else self._host.to(self._device)
        self._views: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = {}

    def lanes(self, size: int) -> NDArray[np.int64]:
        """Writable ``[lanes, size]``, to be sent with :meth:`send`."""
        if size > self._capacity:
            self._grow(size)
        self._size = size
        return self._numbers[: self._lanes * size].reshape(self._lanes, size)

    def send(self, *shape: int) -> tuple[torch.Tensor, ...]:
        """The lanes on the device, each contiguous int64 of ``shape``, by default ``[size]``."""
        shape = shape or (self._size,)
        if self._there is not self._host:
            total = self._lanes * self._size
            self._there[:total].copy_(self._host[:total], non_blocking=True)
        views = self._views.get(shape)
        if views is None:
            total = self._lanes * self._size
            views = self._there[:total].view(self._lanes, *shape).unbind(0)
            self._views[shape] = views
        return views
