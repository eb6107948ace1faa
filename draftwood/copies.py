"""Copies between the host and a device: one upload before a forward, one download after it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_KEPT = 1024
"""Numbers up to which a split on the host comes again and again, so that its views are kept."""

_VIEWS = 512
"""Most splits that are kept."""


def recorded_event(device: torch.device) -> torch.cuda.Event:
    """An event behind all that the device's current stream was asked for."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def downloaded(tensors: Sequence[torch.Tensor]) -> list[NDArray[Any]]:
    """Tensors of one device on the host, after one copy and one wait. HAND-OVER.

    Args:
        tensors: float32, or integers that int32 holds; int64 stays int64.
    """
    device = tensors[0].device
    if device.type == "cpu":
        return [tensor.numpy() for tensor in tensors]
    flat = [
        (each if each.is_floating_point() else each.int()).contiguous().view(torch.int32).flatten()
        for each in tensors
    ]
    packed = flat[0] if len(flat) == 1 else torch.cat(flat)
    if device.type == "cuda":
        there = torch.empty(packed.shape, dtype=torch.int32, device="cpu", pin_memory=True)
        there.copy_(packed, non_blocking=True)
        recorded_event(device).synchronize()
    else:
        there = packed.cpu()
    sizes = [each.numel() for each in tensors]
    numbers = np.split(there.numpy(), np.cumsum(sizes)[:-1])
    return [
        _as_was(part.reshape(each.shape), each) for part, each in zip(numbers, tensors, strict=True)
    ]


def uploaded(parts: Sequence[NDArray[np.int64]], device: torch.device) -> list[torch.Tensor]:
    """Integers on a device, after one copy that the host does not wait for.

    Those of a CPU share their memory.
    """
    if device.type == "cpu":
        return [torch.from_numpy(part) for part in parts]
    cuda = device.type == "cuda"
    sizes = [part.size for part in parts]
    here = torch.empty(sum(sizes), dtype=torch.int64, device="cpu", pin_memory=cuda)
    np.concatenate([part.ravel() for part in parts], out=here.numpy())
    there = torch.empty(here.shape, dtype=torch.int64, device=device)
    there.copy_(here, non_blocking=cuda)
    return [
        sent.view(part.shape)
        for sent, part in zip(there.split(sizes), parts, strict=True)  # type: ignore[no-untyped-call]
    ]


def _as_was(numbers: NDArray[np.int32], tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.is_floating_point():
        return numbers.view(np.float32)
    return numbers.astype(np.int64) if tensor.dtype == torch.int64 else numbers


class Staging:
    """Host buffers that are sent to a device in turn; they grow as needed.

    A buffer is written while the upload out of another one may still be under way. On a CPU there
    is one buffer, which is not copied.

    Args:
        device: where the numbers go.
        size: numbers for which there is room to begin with.

    Attributes:
        generation: changes when the numbers' address on the device does.
    """

    def __init__(self, device: torch.device, size: int = 256) -> None:
        self._device = device
        self._on_host = device.type == "cpu"
        self._cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event | None] = [None] if self._on_host else [None, None]
        self._turn = 0
        self._buffers: list[torch.Tensor] = []
        self.generation = 0
        self._grow(size)

    def begin(self, size: int) -> NDArray[np.int64]:
        """The next buffer, writable int64 ``[size]``."""
        self._turn = (self._turn + 1) % len(self._buffers)
        event = self._events[self._turn]
        if event is not None:
            event.synchronize()
        return self.room(size)

    def room(self, size: int) -> NDArray[np.int64]:
        """The buffer of the last :meth:`begin`, with what is written there, ``[size]``."""
        if size > len(self._buffers[0]):
            self._grow(size)
        return self._numbers[self._turn][:size]

    def send(self, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        """The first numbers of the buffer on the device, split into int64 tensors."""
        total, buffer = sum(sizes), self._buffers[self._turn]
        if self._on_host:
            key = tuple(sizes)
            found = self._views.get(key)
            if found is None:
                found = buffer[:total].split(key)  # type: ignore[no-untyped-call]
                if total <= _KEPT:
                    if len(self._views) >= _VIEWS:
                        self._views.clear()
                    self._views[key] = found
            return found
        self._sent[:total].copy_(buffer[:total], non_blocking=self._cuda)
        if self._cuda:
            self._events[self._turn] = recorded_event(self._device)
        return self._sent[:total].split(list(sizes))  # type: ignore[no-untyped-call,no-any-return]

    def _grow(self, size: int) -> None:
        self.generation += 1
        old = self._buffers
        size = max(size, 2 * len(old[0])) if old else size
        self._buffers = [
            torch.zeros(size, dtype=torch.int64, device="cpu", pin_memory=self._cuda)
            for _ in self._events
        ]
        for before, after in zip(old, self._buffers, strict=False):
            after[: len(before)] = before
        self._numbers = [buffer.numpy() for buffer in self._buffers]
        self._sent = (
            self._buffers[0]
            if self._on_host
            else torch.empty(size, dtype=torch.int64, device=self._device)
        )
        self._views: dict[tuple[int, ...], Sequence[torch.Tensor]] = {}
