"""PyTorch's attention for drafters: query heads that share key heads, at lengths that change."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All but cuDNN, which torch may prefer, and which takes 0.3 seconds or more for each new shape."""


def unplanned(device: torch.device) -> AbstractContextManager[None]:
    """A context in which attention uses no kernel that is planned anew for every length."""
    return sdpa_kernel(_BACKENDS) if device.type == "cuda" else nullcontext()


def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention ``[b, heads, q, d]`` in which no key is repeated and no kernel planned anew.

    The queries of the heads that share a key head become queries of it.

    Args:
        query: ``[b, heads, q, d]``.
        key: ``[b, kv heads, n, d]``.
        value: likewise.
        mask: which keys a query sees, bool ``[.., q, n]``, or ``[.., 1, n]`` for all queries alike;
            None: all.
        scale: of the products; None: 1 / sqrt(d).
    """
    b, heads, q, d = query.shape
    kv = key.shape[1]
    if mask is not None and mask.shape[-2] > 1:
        mask = torch.cat([mask] * (heads // kv), dim=-2)
    with unplanned(query.device):
        packed = query.reshape(b, kv, -1, d)
        found = scaled_dot_product_attention(packed, key, value, mask, scale=scale)
    return found.reshape(b, heads, q, -1)
