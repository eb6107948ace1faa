"""With a compiler there are kernels, which run in PyTorch's threads and read only what they can."""

import ctypes

import pytest
import torch

from draftwood.kernels.compiled import _command
from draftwood.kernels.functions import _TORCH, kernels, readable
from draftwood.runner.cpu.layouts import ROWS, layouts

needs_compiler = pytest.mark.skipif(_command() is None, reason="no C++ compiler")


@needs_compiler
def test_with_a_compiler_there_are_kernels() -> None:
    assert kernels() is not None
    assert ROWS in layouts()


@needs_compiler
def test_they_run_in_pytorchs_threads() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert ctypes.CDLL(str(_TORCH)).omp_get_max_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_what_has_no_memory_on_the_cpu_or_another_dtype_is_not_read() -> None:
    class Noted(torch.Tensor):
        pass

    x = torch.ones(2)
    assert readable(x, torch.float32)
    assert not readable(x, torch.bfloat16)
    assert not readable(x.as_subclass(Noted), torch.float32)
    assert not readable(torch.ones(2, device="meta"), torch.float32)
