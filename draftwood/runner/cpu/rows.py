"""Linears over few rows by compiled code, ``rows.cpp``, on the weight as it is stored.

With few rows, a product takes as long as reading the weight. PyTorch's products read it at a
fraction of the memory's speed, or reorder it first. The compiled one reads it once for up to 64
rows, at that speed for up to 8. Its result for a row does not depend on the other rows.
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

_OPENMP_NAMES = ("libgomp", "libiomp", "libomp")
_OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


class _OpenMP(ctypes.Structure):
    """``OpenMP`` of rows.cpp."""

    _fields_ = tuple((name, c_void_p) for name in ("parallel", "thread", "threads"))


class _Product(ctypes.Structure):
    """``Product`` of rows.cpp."""

    _fields_ = (
        ("openmp", c_void_p),
        ("w", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("narrow", c_int64),
    )


class RowsLinear:
    """``x @ weight.T + bias`` for ``x`` of few rows.

    Args:
        weight: ``[outputs, inputs]``, float32 or bfloat16, contiguous, on the CPU; kept as it is.
        bias: ``[outputs]`` in the weight's dtype, or None.

    Tensors that it cannot read, such as those of a compiler or of another dtype, go to
    ``torch.nn.functional.linear``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        found = _compiled()
        assert found is not None, "callers ask available() first"
        self._multiply, openmp = found
        self._weight, self._bias = weight, None if bias is None else bias.contiguous()
        self._outputs, self._inputs = weight.shape
        # A bias of another dtype is for PyTorch to refuse.
        self._dtype = weight.dtype if bias is None or bias.dtype is weight.dtype else None
        self._product = _Product(
            ctypes.addressof(openmp),
            weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self._outputs,
            self._inputs,
            weight.dtype is torch.bfloat16,
        )
        self._address = ctypes.addressof(self._product)

    def __call__(self, x: Tensor) -> Tensor:
        if not self._takes(x):
            return linear(x, self._weight, self._bias)
        x = x.contiguous()
        y = x.new_empty((*x.shape[:-1], self._outputs))
        self._multiply(self._address, x.data_ptr(), y.data_ptr(), x.numel() // self._inputs)
        return y

    def _takes(self, x: Tensor) -> bool:
        """Whether x has readable memory, is of the right kind, and is not traced."""
        return (
            not torch.compiler.is_compiling()
            and not torch.jit._trace.is_tracing()  # type: ignore[no-untyped-call]
            and type(x) is Tensor
            and x.dtype is self._dtype
            and x.is_cpu
            and x.shape[-1] == self._inputs
        )


def available() -> bool:
    """Whether the product is compiled, or can be compiled, on this machine."""
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
    """The OpenMP library of this process; None if it is not GNU's or compatible."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # only Linux has the file
        return None
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    # Of several, that of PyTorch.
    own = str(Path(torch.__file__).parent.parent)
    found = sorted(path for path in paths if Path(path).name.startswith(_OPENMP_NAMES))
    for path in sorted(found, key=lambda path: not path.startswith(own)):
        try:
            loaded = ctypes.CDLL(path)
            functions = [getattr(loaded, name) for name in _OPENMP_FUNCTIONS]
        except (OSError, AttributeError):
            continue
        return _OpenMP(*(ctypes.cast(each, c_void_p).value for each in functions))
    return None
