"""The kernels of ``kernels/gpu_layers.py`` as tensor operations, like those of modeling files."""

import torch
from torch import Tensor
from torch.nn.functional import silu
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from draftwood.kernels.gpu import LayerKernels
from draftwood.runner.norm_formulas import early as rounded_early
from draftwood.runner.norm_formulas import late as rounded_late

Norms = tuple[tuple[Tensor, float], tuple[Tensor, float]] | None


def _norm(x: Tensor, weight: Tensor, eps: float, early: bool) -> Tensor:
    return (rounded_early if early else rounded_late)(x, weight, eps)


def add_norm(
    x: Tensor, change: Tensor | None, weight: Tensor, eps: float, *, early: bool
) -> tuple[Tensor, Tensor]:
    sums = x if change is None else x + change
    return sums, _norm(sums, weight, eps, early)


def rotate_store(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: tuple[Tensor, Tensor],
    entries: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: Norms,
    *,
    early: bool,
) -> Tensor:
    n, (kv_heads, width) = len(query), keys.shape[1:]
    heads, stored = query.reshape(1, n, -1, width), key.reshape(1, n, kv_heads, width)
    if norms is not None:
        heads, stored = (
            _norm(each, *own, early) for each, own in zip((heads, stored), norms, strict=True)
        )
    heads, stored = apply_rotary_pos_emb(heads, stored, *factors, unsqueeze_dim=2)
    keys.index_copy_(0, entries, stored[0])
    values.index_copy_(0, entries, value.reshape(n, kv_heads, width))
    return torch.as_tensor(heads[0])


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return silu(gate) * up


PLAIN = LayerKernels(add_norm, rotate_store, silu_mul)
