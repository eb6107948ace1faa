"""The largest keys of a draft model's outputs by a kernel, ``draws.h``.

It works with logarithms of the keys and in float32, and needs no softmax. The plain way, in
:mod:`draftwood.drafters._rollout.coupling`, makes several tensors of the vocabulary's size for each
node.
"""

import ctypes
from ctypes import c_double, c_int64, c_void_p

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.kernels.functions import kernels, readable
from draftwood.protocols import Expand
from draftwood.sampling.noise import RequestNoise

_DTYPES = (torch.float32, torch.bfloat16)


class _Couple(ctypes.Structure):
    """``Couple`` of draws.h."""

    _fields_ = (
        ("logits", c_void_p),
        ("noise", c_void_p),
        ("depths", c_void_p),
        ("rows", c_int64),
        ("outputs", c_int64),
        ("k", c_int64),
        ("temperature", c_double),
        ("narrow", c_int64),
        ("largest", c_void_p),
        ("shares", c_void_p),
    )


def kernel_for(query: Expand, logits: torch.Tensor) -> bool:
    """Whether the kernel can answer a query: on a CPU, with a request's own random numbers."""
    return (
        isinstance(query.noise, RequestNoise)
        and not any(query.exclude)
        and readable(logits, logits.dtype)
        and kernels() is not None
    )


def couple_with_kernel(
    query: Expand, logits: torch.Tensor, vocabulary: VocabularyMap
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Outputs with the largest keys, int64 ``[m, k]``, and their shares, 0 where there is none.

    Args:
        query: for which there is a kernel.
        logits: ``[m, Vd]``.
        vocabulary: the model's.
    """
    compiled = kernels()
    assert compiled is not None, "callers ask for the kernel first"
    assert isinstance(query.noise, RequestNoise)
    if logits.dtype not in _DTYPES:
        logits = logits.float()
    logits = logits.contiguous()
    rows, outputs = logits.shape
    depths, levels = np.unique(
        np.array([query.tree.depths[node] for node in query.nodes]), return_inverse=True
    )
    noise = np.stack(
        [query.noise.perturbations(int(depth), vocabulary.to_target) for depth in depths]
    )
    largest = np.empty((rows, query.k), dtype=np.int64)
    shares = np.empty((rows, query.k), dtype=np.float32)
    levels = levels.astype(np.int64)
    asked = _Couple(
        *(logits.data_ptr(), noise.ctypes.data, levels.ctypes.data),
        *(rows, outputs, query.k, query.temperature, logits.dtype is torch.bfloat16),
        *(largest.ctypes.data, shares.ctypes.data),
    )
    compiled.couple(ctypes.addressof(asked))
    return largest, shares
