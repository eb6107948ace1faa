"""A simulated CUDA device: tensors say ``cuda:0``, and a CPU computes their numbers.

A CUDA build or a GPU is not needed. The device refuses what CUDA refuses (host and device tensors
in one operation), counts what costs time there (launches, uploads, downloads, waits), and finds
pinned buffers that are written or read while a copy is under way. It says nothing about speed, and
runs operations for which no CUDA kernel exists.
"""

from tests.simulated_cuda.device import SimulatedCuda
from tests.simulated_cuda.models import to_simulated
from tests.simulated_cuda.work import Work

__all__ = ["SimulatedCuda", "Work", "to_simulated"]
