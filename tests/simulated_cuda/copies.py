"""Copies between the host and the simulated device, and the memory that they read and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tests.simulated_cuda.work import Work, caller

if TYPE_CHECKING:
    from tests.simulated_cuda.graphs import Recording


@dataclass
class _Upload:
    """A copy out of a pinned buffer.

    Attributes:
        source: the buffer.
        numbers: its bytes when the copy was asked for.
        place: who asked.
    """

    source: torch.Tensor
    numbers: torch.Tensor
    place: str

    def finish(self, work: Work) -> None:
        """The device has read the buffer: it must not have changed."""
        if not torch.equal(_bytes(self.source), self.numbers):
            work.faults[f"a pinned buffer is written while it is uploaded, {self.place}"] += 1


@dataclass
class _Download:
    """A copy into a buffer on the host, which holds nothing sensible before it is waited for.

    Attributes:
        target: the buffer.
        numbers: what it will hold.
    """

    target: torch.Tensor
    numbers: torch.Tensor

    def finish(self, work: Work) -> None:
        """The device has written the buffer."""
        self.target.copy_(self.numbers)


class CopiesUnderWay:
    """Copies that the host has not waited for, and pinned memory.

    Args:
        work: counts them.

    Attributes:
        asked: kernels and copies that the device was asked for.
        finished: how many of them the host knows to be finished.
        recording: what is recorded at present.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._copies: list[tuple[int, _Upload | _Download]] = []
        self._pinned: dict[int, torch.Tensor] = {}
        self.asked = 0
        self.finished = 0
        self.recording: Recording | None = None

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take the tensor's memory for pinned."""
        self._pinned[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def pinned(self, tensor: torch.Tensor) -> bool:
        """Whether its memory is pinned."""
        return tensor.untyped_storage()._cdata in self._pinned

    def upload(self, source: torch.Tensor, *, non_blocking: bool, in_pieces: bool = False) -> None:
        """Count an upload; one that does not block is under way from now on."""
        self._refuse_recording()
        place = caller()
        self._work.uploads[place] += 1
        pinned = self.pinned(source)
        if pinned and (in_pieces or not source.is_contiguous()):
            self._work.faults[f"a pinned buffer is uploaded in pieces, {place}"] += 1
        if not non_blocking:
            self.wait()
        elif pinned:
            self._begin(_Upload(source, _bytes(source).clone(), place))

    def download(self, source: torch.Tensor, *, into: torch.Tensor, non_blocking: bool) -> None:
        """Copy to the host: at once, after a wait, or when it is waited for."""
        self._refuse_recording()
        self._work.downloads[caller()] += 1
        if not non_blocking:
            self.wait()
            if into is not source:
                into.copy_(source)
            return
        self._begin(_Download(into, source.clone()))
        into.fill_(torch.nan if into.is_floating_point() else 85)

    def launch(self) -> None:
        """Count a kernel."""
        self._work.launches[caller()] += 1
        self.asked += 1

    def wait(self, until: int | None = None) -> None:
        """Wait for all that was asked for, or for what was asked for first."""
        self._refuse_recording()
        self._work.waits[caller()] += 1
        self.finished = self.asked if until is None else until
        while self._copies and self._copies[0][0] <= self.finished:
            _, copy = self._copies.pop(0)
            copy.finish(self._work)

    def did(self, operation: Callable[[], Any], found: Any) -> None:
        """Count an operation that has run, and record it."""
        self.launch()
        if self.recording is not None:
            self.recording.add(operation, found)

    def event(self, **options: Any) -> Event:
        """What stands in for ``torch.cuda.Event``."""
        return Event(self)

    def _refuse_recording(self) -> None:
        if self.recording is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing, {caller()}")

    def _begin(self, copy: _Upload | _Download) -> None:
        self.asked += 1
        self._copies.append((self.asked, copy))


class Event:
    """A point in the device's work that the host can wait for.

    Args:
        copies: of its device.
    """

    def __init__(self, copies: CopiesUnderWay) -> None:
        self._copies = copies
        self._place: int | None = None

    def record(self, stream: object = None) -> None:
        """Mark what has been asked for so far."""
        self._place = self._copies.asked

    def synchronize(self) -> None:
        """Wait for the mark, if the host does not know that it has been passed."""
        if self._place is not None and self._place > self._copies.finished:
            self._copies.wait(self._place)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)
