"""Draws of one token from a row of logits by a kernel, ``draws.h``.

The plain way makes tensors of the vocabulary's size for every filter, the softmax and the random
numbers. On a CPU that takes 1.3 ms for 49,152 tokens, a twelfth of a forward of a model of 135
million parameters. The kernel reads the row once or twice and makes few random numbers.
"""

import ctypes
from ctypes import c_double, c_int64, c_uint64, c_void_p

import torch

from draftwood.kernels.functions import kernels, readable
from draftwood.sampling.filters import Filters

_DTYPES = (torch.float32, torch.bfloat16)


class _Draw(ctypes.Structure):
    """``Draw`` of draws.h."""

    _fields_ = (
        ("logits", c_void_p),
        ("vocab", c_int64),
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("min_p", c_double),
        ("seed", c_uint64),
        ("position", c_uint64),
        ("narrow", c_int64),
    )


def kernel_for(logits: torch.Tensor) -> bool:
    """Whether the kernel draws from rows of these logits: on a CPU, if it is compiled."""
    return readable(logits, logits.dtype) and kernels() is not None


def draw_with_kernel(scores: torch.Tensor, filters: Filters, seed: int, position: int) -> int:
    """The token that :meth:`draftwood.sampling.noise.RequestNoise.choose` gives, up to rounding.

    Args:
        scores: ``[V]`` on a CPU, before the filters.
        filters: are applied to them.
        seed: the request's.
        position: absolute index of the token.

    Returns:
        The token; -1 if the largest score is not finite, or one is not a number.
    """
    compiled = kernels()
    assert compiled is not None, "callers ask for the kernel first"
    if scores.dtype not in _DTYPES:
        scores = scores.float()
    scores = scores.contiguous()
    top_k = min(filters.top_k, len(scores))  # ctypes cuts integers of more than 64 bits
    draw = _Draw(
        scores.data_ptr(),
        len(scores),
        *(filters.temperature, top_k, filters.top_p, filters.min_p),
        *(seed, position, scores.dtype is torch.bfloat16),
    )
    found: int = compiled.draw(ctypes.addressof(draw))
    return found
