"""The likeliest tokens of rows of logits by a kernel, ``top.h``."""

import ctypes
from ctypes import c_int64, c_void_p

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.kernels.functions import kernels, readable

_DTYPES = (torch.float32, torch.bfloat16)


class _Top(ctypes.Structure):
    """``Top`` of top.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("openmp", "logits")),
        *((name, c_int64) for name in ("rows", "vocab", "k", "narrow")),
        *((name, c_void_p) for name in ("tokens", "shares", "numbers")),
    )


def top_of_rows(
    logits: torch.Tensor, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]] | None:
    """The ``k`` likeliest tokens of each row, with their softmax probabilities.

    Args:
        logits: ``[n, V]``.
        k: from 1 to V.

    Returns:
        int64 ``[n]``, the likeliest token, the lowest one of equals; int64 ``[n, k]``; float32
        ``[n, k]``. None if the kernel does not take these logits, or a row holds a NaN or an
        infinity as its largest.
    """
    compiled = kernels()
    if compiled is None or logits.dtype not in _DTYPES or not readable(logits, logits.dtype):
        return None
    logits = logits.contiguous()
    n, vocab = logits.shape
    tokens = np.empty((n, k), dtype=np.int64)
    shares = np.empty((n, k), dtype=np.float32)
    numbers = np.empty(n, dtype=np.int64)
    asked = _Top(
        *(compiled.openmp, logits.data_ptr(), n, vocab, k, logits.dtype is torch.bfloat16),
        *(tokens.ctypes.data, shares.ctypes.data, numbers.ctypes.data),
    )
    compiled.top(ctypes.addressof(asked))
    return (tokens[:, 0], tokens, shares) if numbers.all() else None
