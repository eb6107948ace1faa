"""A comparison of the attention kernel with tensor operations, on the device where it will run.

Models are compared too when they are attached, but on a few keys only.
"""

import logging
from functools import cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import BLOCK, AttendTrees
from draftwood.runner.device_trees import DeviceTrees
from draftwood.runner.masks import LayerKind
from draftwood.tree import ancestors, tree_of

logger = logging.getLogger(__name__)

_LENGTHS, _NODES, _ROWS = (200, 70), (70, 5), (2, 0)
"""Several blocks of keys and of queries, and more nodes than a word has bits."""
_TABLE = ((2 * BLOCK, 0), (0, 0), (3 * BLOCK, BLOCK))
"""First entries of the blocks of three rows, of which the second has none of its own."""
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@cache
def attention_on(
    device: torch.device, dtype: torch.dtype, shapes: frozenset[tuple[int, int, int, int]]
) -> AttendTrees | None:
    """The kernel for attention of trees on a device, if it computes there what it should.

    Args:
        device: a GPU.
        dtype: of queries, keys and values.
        shapes: query heads per key head, key heads, width of a key and width of a value, of all
            layers.
    """
    try:
        from draftwood.kernels.gpu_attention import attend_trees

        for shape in sorted(shapes):
            check_attention(attend_trees, device, dtype, *shape)
    except Exception as error:  # noqa: BLE001 - Triton needs a C compiler, and a GPU that it knows
        logger.warning("trees attend with masks, which takes longer: %s", error)
        return None
    return attend_trees


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
        return torch.randn(sizes, generator=generator, device="cpu").to(device, dtype)

    entries, table = 4 * BLOCK, torch.tensor(_TABLE, device="cpu")
    queries = noise(sum(_NODES), group * kv_heads, width)
    keys, values = noise(entries, kv_heads, width), noise(entries, kv_heads, value_width)
    trees = [tree_of(range(n), [(node - 1) // 2 for node in range(n)]) for n in _NODES]
    builder = DeviceTrees(attend, (LayerKind("full_attention"),), group, dtype, device)
    _, plan = builder.build(_LENGTHS, trees, [0] * len(trees))
    numbers = torch.from_numpy(plan.numbers).to(device)
    seen = plan.seen(numbers, torch.tensor(_ROWS, device=device), table.to(device))
    found = attend(queries, keys, values, seen).float()
    spans = pairwise(accumulate(_NODES, initial=0))
    for (start, end), tree, length, row in zip(spans, trees, _LENGTHS, _ROWS, strict=True):
        own, other = (
            each[
                (table[row][:, None] + torch.arange(BLOCK, device="cpu")).flatten()[
                    : length + len(tree)
                ]
            ]
            .float()
            .repeat_interleave(group, dim=1)
            for each in (keys, values)
        )
        scores = torch.einsum("qhd,khd->hqk", queries[start:end].float(), own) * width**-0.5
        shown = torch.ones(len(tree), length + len(tree), dtype=torch.bool, device="cpu")
        shown[:, length:] = torch.from_numpy(ancestors(tree.parents.tolist())).bool()
        weights = scores.masked_fill(~shown.to(device), -torch.inf).softmax(dim=-1)
        expected = torch.einsum("hqk,khd->qhd", weights, other)
        error = float((found[start:end] - expected).abs().max())
        if not error <= _TOLERANCES[dtype]:
            raise DraftwoodError(f"the attention kernel is off by {error:.1e} in {dtype}")
