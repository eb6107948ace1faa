"""Linears over few rows by compiled code, ``rows.cpp``, on the weight as it is stored.

With few rows, a product takes as long as reading the weight. PyTorch's products read it at a
fraction of the memory's speed, or reorder it first. The compiled one reads it once for up to 64
rows; with AVX-512, at the memory's speed for up to 8. Its result for a row does not depend on the
other rows.
"""

import ctypes
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.runner.cpu.compiled import library

SOURCE = Path(__file__).with_name("rows.cpp")

_TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
_OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


class _OpenMP(ctypes.Structure):
    """``OpenMP`` of rows.cpp."""

    _fields_ = tuple((name, c_void_p) for name in ("parallel", "thread", "threads"))


class _Product(ctypes.Structure):
    """``Product`` of rows.cpp."""

    _fields_ = (
        ("openmp", c_void_p),
        ("w", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("narrow", c_int64),
    )


class RowsLinear:
    """``(x, bias) -> x @ weight.T + bias`` for ``x`` of few rows.

    Args:
        weight: ``[outputs, inputs]``, float32 or bfloat16, contiguous, on the CPU; kept as it is.

    Tensors that it cannot read, such as those of a compiler or of another dtype, go to
    ``torch.nn.functional.linear``.
    """

    def __init__(self, weight: Tensor) -> None:
        found = _compiled()
        assert found is not None, "callers ask available() first"
        self._multiply, openmp = found
        self._weight = weight
        self._outputs, self._inputs = weight.shape
        narrow = weight.dtype is torch.bfloat16
        self._product = _Product(
            ctypes.addressof(openmp), weight.data_ptr(), self._outputs, self._inputs, narrow
        )
        self._address = ctypes.addressof(self._product)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if not self._takes(x, bias):
            return linear(x, self._weight, bias)
        x = x.contiguous()
        y = x.new_empty((*x.shape[:-1], self._outputs))
        added = None if bias is None else bias.data_ptr()
        rows = x.numel() // self._inputs
        self._multiply(self._address, added, x.data_ptr(), y.data_ptr(), rows)
        return y

    def _takes(self, x: Tensor, bias: Tensor | None) -> bool:
        """Whether both have readable memory, are of the right kind, and are not traced."""
        return (
            not torch.compiler.is_compiling()
            and not torch.jit.is_tracing()  # type: ignore[no-untyped-call]
            and type(x) is Tensor
            and x.dtype is self._weight.dtype
            and x.is_cpu
            and x.shape[-1] == self._inputs
            and (bias is None or self._adds(bias))
        )

    def _adds(self, bias: Tensor) -> bool:
        return (
            type(bias.data) is Tensor
            and bias.dtype is self._weight.dtype
            and bias.is_cpu
            and bias.shape == (self._outputs,)
            and bias.is_contiguous()
        )


def available() -> bool:
    """Whether the product can be used on this machine; compiles it at first."""
    return _compiled() is not None


@cache
def _compiled() -> tuple[Any, _OpenMP] | None:
    """The compiled function, and the OpenMP that PyTorch uses, whose threads it shares."""
    openmp = _openmp()
    found = None if openmp is None else library(SOURCE)
    if openmp is None or found is None:
        return None
    multiply = found.draftwood_multiply
    multiply.argtypes, multiply.restype = [c_void_p, c_void_p, c_void_p, c_int64], None
    return multiply, openmp


def _openmp() -> _OpenMP | None:
    """The OpenMP library of PyTorch; None if it is not GNU's or compatible."""
    try:
        # A symbol is looked up in the libraries that it depends on too.
        loaded = ctypes.CDLL(str(_TORCH))
        functions = [getattr(loaded, name) for name in _OPENMP_FUNCTIONS]
    except (OSError, AttributeError):
        return None
    return _OpenMP(*(ctypes.cast(each, c_void_p).value for each in functions))
