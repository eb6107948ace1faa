"""Attention of trees and prompts by a kernel, ``attention.h``, on keys and values as cached.

PyTorch's attention on a CPU shares no keys among the query heads of a group, or repeats them, and
is written for many queries. A step has the queries of some trees, in each of some dozens of layers.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from typing import Final

import torch
from torch import Tensor

from draftwood.kernels.functions import kernels, readable

_DTYPES = (torch.float32, torch.bfloat16)
LANES, WIDEST = 16, 512
"""The kernel takes heads whose width is a multiple of the first, up to the second."""

_SIZES: Final = ("batch", "heads", "kv_heads", "queries", "keys", "width")
_STRIDES: Final = tuple(f"{each}_{axis}" for each in "qkv" for axis in ("batch", "head", "row"))


class Attention(ctypes.Structure):
    """``Attention`` of attention.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("openmp", "q", "k", "v", "mask", "out")),
        *((name, c_int64) for name in (*_SIZES, *_STRIDES, "mask_batch", "mask_row")),
        ("scale", c_double),
        ("narrow", c_int64),
        ("starts", c_void_p),
        ("lengths", c_void_p),
        ("in_order", c_void_p),
        ("places", c_void_p),
    )


class Sequences:
    """Sequences of different lengths, their queries behind one another, as the kernel reads them.

    Args:
        starts: first query of each sequence, and the number of all queries.
        lengths: keys of each sequence.
        in_order: whether the queries of each sequence are its last tokens, in order; it has no mask
            then, and a query sees the keys up to its own. Empty: of none.
    """

    def __init__(
        self, starts: Sequence[int], lengths: Sequence[int], in_order: Sequence[bool] = ()
    ) -> None:
        numbers = [starts, lengths, *([in_order] if any(in_order) else [])]
        self._arrays = [(c_int64 * len(each))(*each) for each in numbers]
        found = [*map(ctypes.addressof, self._arrays), None]
        self.addresses = tuple(found[:3])
        self.fewest_keys = min(lengths)


_IN_ORDER = (c_int64 * 1)(1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    sequences: Sequences | None = None,
    *,
    in_order: bool = False,
) -> Tensor | None:
    """Attention output ``[b, q, heads, d]``; None if the kernel does not take these tensors.

    Args:
        query: ``[b, heads, q, d]``; with ``sequences`` ``[1, heads, n, d]``, and so the output.
        key: ``[b, kv_heads, kv, d]``; g query heads in turn share a key head.
        value: as ``key``.
        mask: ``[b, 1, g * q, kv]``, added to the scores; None: all keys are visible.
        scale: of the scores; None: ``d ** -0.5``.
        sequences: if they differ in length; each uses the first rows and columns of its mask.
        in_order: whether the queries of a single sequence are its last tokens, in order.
    """
    dtype = query.dtype
    if dtype not in _DTYPES or not query.is_cpu:
        return None
    compiled = kernels()
    _, heads, queries, width = query.shape
    batch, kv_heads, keys, _ = key.shape
    if (
        compiled is None
        or width % LANES
        or width > WIDEST
        or value.shape != key.shape
        or key.shape[-1] != width
        or not keys > 0
        or (sequences is not None and sequences.fewest_keys < 1)
        or (in_order and batch > 1)
        or len(query) != (batch if sequences is None else 1)
        or heads % kv_heads
        or not all(readable_rows(x, dtype) for x in (query, key, value))
        or (mask is not None and not (len(mask) == batch and readable_rows(mask, dtype)))
    ):
        return None
    out = query.new_empty((len(query), queries, heads, width))
    call = Attention(
        compiled.openmp,
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        None if mask is None else mask.data_ptr(),
        out.data_ptr(),
        *(batch, heads, kv_heads, queries, keys, width),
        *query.stride()[:3],
        *key.stride()[:3],
        *value.stride()[:3],
        *((0, 0) if mask is None else (mask.stride(0), mask.stride(2))),
        width**-0.5 if scale is None else scale,
        dtype is torch.bfloat16,
        *(addresses_of(in_order=in_order) if sequences is None else sequences.addresses),
        None,
    )
    compiled.attention(ctypes.addressof(call))
    return out


def addresses_of(*, in_order: bool) -> tuple[int | None, ...]:
    """As :attr:`Sequences.addresses`, of a single sequence or of several of one length."""
    return None, None, ctypes.addressof(_IN_ORDER) if in_order else None


def readable_rows(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether the kernel may read x, and elements of a row lie beside each other."""
    return readable(x, dtype) and (x.stride(-1) == 1 or x.shape[-1] == 1)
