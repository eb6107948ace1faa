"""With a compiler there are kernels, which run in PyTorch's threads and read only what they can."""

import ctypes
import logging
from pathlib import Path

import pytest
import torch

from draftwood.kernels import functions
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


@pytest.mark.parametrize("lacks", ["library", "OpenMP"])
def test_without_pytorchs_openmp_there_are_none_and_the_reason_is_logged(
    lacks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if lacks == "library":
        monkeypatch.setattr(functions, "_TORCH", tmp_path / "libtorch_cpu.so")
        reason = f"cannot be loaded: {tmp_path / 'libtorch_cpu.so'}"
    else:
        monkeypatch.setattr(functions, "_OPENMP_FUNCTIONS", ("GOMP_other",))
        reason = "GOMP_other"
    with caplog.at_level(logging.INFO, functions.__name__):
        assert kernels.__wrapped__() is None
    [said] = caplog.messages
    assert reason in said
    assert functions.lacking() in said


def test_what_has_no_memory_on_the_cpu_or_another_dtype_is_not_read() -> None:
    class Noted(torch.Tensor):
        pass

    x = torch.ones(2)
    assert readable(x, torch.float32)
    assert not readable(x, torch.bfloat16)
    assert not readable(x.as_subclass(Noted), torch.float32)
    assert not readable(torch.ones(2, device="meta"), torch.float32)
