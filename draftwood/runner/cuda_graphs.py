"""CUDA graphs: what a device was asked for, recorded, and repeated in one call."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from draftwood.runner.scored import Scored
from draftwood.runner.static import Forward

_FIRST_WARM_UPS, _WARM_UPS = 2, 1
"""Calls before the first forward is recorded, in which libraries are set up, and before others, in
which their kernels are compiled."""

_recording = threading.Lock()
"""A thread that waits for its device while another one records spoils the recording."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """A block in which no garbage is collected: to free another graph spoils a recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def clear_workspaces() -> None:
    """Let a graph take the workspaces of matrix products from its own pool.

    Those of the warm-ups are in the usual memory. PyTorch's own graphs (``torch.compile``) give
    them back, and a repetition would write to memory of others.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # a build for CPUs has none
    if clear is not None:
        clear()


class CudaGraphs:
    """Records forwards of one model; the graphs share the memory of what lies between two kernels.

    Args:
        device: where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # One of its own: libraries keep memory by stream, which must not be another model's.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._first = True
        self.forget()

    def forget(self) -> None:
        """See :class:`draftwood.runner.static.Graphs`."""
        # A pool whose graphs are gone cannot be recorded into again.
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, forward: Forward) -> Forward:
        """See :class:`draftwood.runner.static.Graphs`."""
        with _recording, torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            graph = torch.cuda.CUDAGraph()
            # Entered here as well, so that it is left if the recording fails.
            try:
                with torch.cuda.stream(self._stream), _uncollected():
                    output = self._recorded(graph, forward)
            finally:  # a warm-up may still write the cache and read what was uploaded
                current.wait_stream(self._stream)

        def repeat() -> Scored:
            graph.replay()
            return output

        return repeat

    def _recorded(self, graph: torch.cuda.CUDAGraph, forward: Forward) -> Scored:
        """Warm up, then record; returns the output, which is written at each repetition."""
        for _ in range(_FIRST_WARM_UPS if self._first else _WARM_UPS):
            forward()
        self._first = False
        clear_workspaces()
        try:
            with torch.cuda.graph(
                graph, self._pool, self._stream, capture_error_mode="thread_local"
            ):
                return forward()
        except Exception:
            self.forget()  # the pool takes no other recording
            raise
