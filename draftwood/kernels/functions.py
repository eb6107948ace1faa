"""The kernels as functions, made on first use.

Those in C++ are compiled for this machine's processor, and run in PyTorch's own threads.
"""

import ctypes
import logging
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from draftwood.kernels.compiled import functions, library

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent

_TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
_OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

_ARGUMENTS: Final = {
    "multiply": [c_void_p] * 4 + [c_int64],
    "rms_norm": [c_void_p] * 3 + [c_int64] * 2 + [c_double] + [c_int64] * 2,
    "attention": [c_void_p],
    "before_attention": [c_void_p] * 4 + [c_int64] + [c_void_p] * 4 + [c_int64],
    "after_attention": [c_void_p] * 5 + [c_int64],
    "stack": [c_void_p],
    "draw": [c_void_p],
    "couple": [c_void_p],
    "top": [c_void_p],
    "panel": [],
}
"""The arguments of each function, in the order of its C++."""

Function: TypeAlias = Any
"""A function of the library."""


class _OpenMP(ctypes.Structure):
    """``OpenMP`` of vectors.h."""

    _fields_ = tuple((name, c_void_p) for name in ("parallel", "thread", "threads"))


@dataclass(frozen=True)
class Kernels:
    """The compiled functions.

    Attributes:
        multiply: of rows.h.
        rms_norm: of norms.h.
        attention: of attention.h.
        before_attention: of layers.h.
        after_attention: of layers.h.
        stack: of stack.h.
        draw: of draws.h.
        couple: of draws.h.
        top: of top.h.
        panel: of panels.h.
        openmp: address of what they need to know of PyTorch's OpenMP.
        version: digest of the sources, the compiler, its flags and the processor.
    """

    multiply: Function
    rms_norm: Function
    attention: Function
    before_attention: Function
    after_attention: Function
    stack: Function
    draw: Function
    couple: Function
    top: Function
    panel: Function
    openmp: int
    version: str


@cache
def kernels() -> Kernels | None:
    """The kernels, compiled now if need be; None if this machine cannot compile or run them."""
    openmp = _openmp()
    if isinstance(openmp, str):
        logger.info("kernels: not used, as %s", openmp)
        return None
    found = library(SOURCES)
    if found is None:
        return None
    _kept.append(openmp)
    own = functions(found, _ARGUMENTS, {"draw": c_int64, "panel": c_int64})
    return Kernels(**own, openmp=ctypes.addressof(openmp), version=Path(found._name).stem)


def kernels_version() -> str:
    """The version of the kernels; empty without."""
    compiled = kernels()
    return compiled.version if compiled else ""


_kept: list[_OpenMP] = []
"""What the kernels point to."""


def casts(dtype: torch.dtype) -> bool:
    """Whether ``torch.autocast`` has products on the CPU computed in another dtype than this."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is not dtype


def readable(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether a kernel may read x: it has memory on the CPU, that dtype, and is neither traced nor
    to be cast.
    """
    return (
        type(x) is Tensor
        and x.dtype is dtype
        and x.is_cpu
        and not casts(dtype)
        and not torch.compiler.is_compiling()
        and not torch.jit._trace.is_tracing()  # type: ignore[no-untyped-call]
    )


def torch_functions(*names: str) -> list[Function]:
    """Functions of PyTorch's library for the CPU, or of those that it depends on.

    Raises:
        OSError: the library is not where PyTorch's packages have it, or cannot be loaded.
        AttributeError: it lacks one of them; the message says which.
    """
    loaded = ctypes.CDLL(str(_TORCH))
    return [getattr(loaded, name) for name in names]


def lacking() -> str:
    """What the kernels lack of PyTorch, a clause; empty if nothing."""
    found = _openmp()
    return found if isinstance(found, str) else ""


def _openmp() -> _OpenMP | str:
    """The OpenMP library of PyTorch; a clause if it is not GNU's or compatible."""
    try:
        functions = torch_functions(*_OPENMP_FUNCTIONS)
    except OSError as error:
        return f"PyTorch's library for the CPU cannot be loaded: {error}"
    except AttributeError as error:
        return f"PyTorch's OpenMP is neither GNU's nor like it: {error}"
    return _OpenMP(*(ctypes.cast(each, c_void_p).value for each in functions))
