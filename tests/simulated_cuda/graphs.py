"""Graphs of the simulated device: what it was asked for, repeated with the same arguments.

A number that the host computed stays as it was when it was recorded, and so does the address of a
tensor. A recording that waits for the device, or copies from or to the host, is refused, as CUDA
refuses it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from draftwood.runner.static import Forward
from tests.simulated_cuda.copies import CopiesUnderWay


class Recording:
    """Operations in order, each with the tensors that it wrote, all on the CPU."""

    def __init__(self) -> None:
        self._operations: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []

    def add(self, operation: Callable[[], Any], found: Any) -> None:
        """Add an operation that has just run, and what it returned."""
        self._operations.append((operation, _tensors(found)))

    def repeat(self) -> None:
        """Run the operations again; results are written where they were."""
        for operation, written in self._operations:
            for into, result in zip(written, _tensors(operation()), strict=True):
                if into is not result:
                    into.copy_(result)


class SimulatedGraphs:
    """What stands in for :class:`draftwood.runner.cuda_graphs.CudaGraphs`.

    Args:
        copies: of the device, which knows what is recorded.
    """

    def __init__(self, copies: CopiesUnderWay) -> None:
        self._copies = copies

    def forget(self) -> None:
        """See :class:`draftwood.runner.static.Graphs`."""

    def record(self, forward: Forward) -> Forward:
        """See :class:`draftwood.runner.static.Graphs`."""
        forward()
        recording = self._copies.recording = Recording()
        try:
            output = forward()
        finally:
            self._copies.recording = None

        def repeat() -> Any:
            self._copies.launch()
            with torch._C._DisableTorchDispatch():
                recording.repeat()
            return output

        return repeat


def _tensors(found: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
