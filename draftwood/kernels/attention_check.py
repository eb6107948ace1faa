"""A comparison of the attention kernel with tensor operations, on the device where it will run.

Models are compared too when they are attached, but on a few keys only.
"""

from itertools import pairwise

import torch
from torch import Tensor

from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import AttendTrees, Seen

_LENGTHS, _NODES = (200, 70), (70, 5)
"""Several blocks of keys and of queries, and more nodes than a word has bits."""
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def check_attention(
    attend: AttendTrees,
    device: torch.device,
    dtype: torch.dtype,
    group: int,
    kv_heads: int,
    width: int,
    value_width: int,
) -> None:
    """Compare the output for two binary trees.

    Raises:
        DraftwoodError: it differs.
    """
    generator = torch.Generator().manual_seed(0)

    def noise(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(device, dtype)

    def numbers(*given: int) -> Tensor:
        return torch.tensor(given, dtype=torch.int64, device=device)

    starts = (0, _NODES[0], sum(_NODES))
    rows = sum(_LENGTHS) + sum(_NODES)
    queries = noise(starts[-1], group * kv_heads, width)
    keys, values = noise(3, rows, kv_heads, width), noise(3, rows, kv_heads, value_width)
    seen_nodes = _ancestors(max(_NODES))
    width_of_words = -(-max(_NODES) // 64)
    words = torch.zeros(starts[-1], width_of_words, dtype=torch.int64)
    for start, end in pairwise(starts):
        for node in range(end - start):
            for above in seen_nodes[node].nonzero().flatten().tolist():
                # The highest bit is the sign's.
                words[start + node, above // 64] |= (1 << above % 64) - (above % 64 == 63) * 2**64
    seen = Seen(
        numbers(*starts[:-1]),
        numbers(*_NODES),
        numbers(*_LENGTHS),
        numbers(0, 0),
        numbers(2, 0),
        words.to(device),
        torch.zeros(2, 0, dtype=torch.int64, device=device),
        max(_NODES),
    )
    found = attend(queries, keys, values, seen).float()
    for (start, end), length, row in zip(pairwise(starts), _LENGTHS, (2, 0), strict=True):
        n = end - start
        own, other = (
            each[row, : length + n].float().repeat_interleave(group, dim=1)
            for each in (keys, values)
        )
        scores = torch.einsum("qhd,khd->hqk", queries[start:end].float(), own) * width**-0.5
        shown = torch.ones(n, length + n, dtype=torch.bool)
        shown[:, length:] = seen_nodes[:n, :n]
        weights = scores.masked_fill(~shown.to(device), -torch.inf).softmax(dim=-1)
        expected = torch.einsum("hqk,khd->qhd", weights, other)
        error = float((found[start:end] - expected).abs().max())
        if not error <= _TOLERANCES[dtype]:
            raise DraftwoodError(f"the attention kernel is off by {error:.1e} in {dtype}")


def _ancestors(n: int) -> Tensor:
    """Bool ``[n, n]``: whether a node sees another, in a binary tree filled level by level."""
    found = torch.eye(n, dtype=torch.bool)
    for node in range(1, n):
        found[node] |= found[(node - 1) // 2]
    return found
