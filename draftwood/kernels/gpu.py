"""The Triton kernels, where they run; the modules that define them need Triton to be imported."""

import logging
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

BLOCK = 256
"""Entries of a block of the KV cache: a multiple of the keys that a kernel reads at once."""


class DrawOnGpu(Protocol):
    """``draw_on_gpu`` of ``gpu_draws.py``."""

    def __call__(
        self, scores: Tensor, seeds: Tensor, positions: Tensor, levels: Tensor, /
    ) -> Tensor: ...


class Seen(NamedTuple):
    """The keys that the queries of a batch of sequences see; int64 on the device.

    Attributes:
        starts: ``[b]``, the first query of each sequence.
        counts: ``[b]``, its queries.
        lengths: ``[b]``, its cached tokens before the root of its tree.
        done: ``[b]``, the nodes of its tree that are cached too; queries are the next ones.
        rows: ``[b]``, its row in the table.
        table: ``[rows, blocks]``, the first cache entry of each block of ``BLOCK`` tokens of each
            row.
        words: ``[n, w]``, the ancestor words of each query; w = 0: a query sees all before it.
        depths: ``[b, nodes]`` of all nodes of the trees, cached or not; read where reach is
            limited.
        most: queries of a sequence at most.
        padded: whether some of the n queries are of no sequence; their output is zero.
    """

    starts: Tensor
    counts: Tensor
    lengths: Tensor
    done: Tensor
    rows: Tensor
    table: Tensor
    words: Tensor
    depths: Tensor
    most: int
    padded: bool = False


class AttendTrees(Protocol):
    """``attend_trees`` of ``gpu_attention.py``."""

    def __call__(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        seen: Seen,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        window: int | None = None,
        chunk: int | None = None,
        splits: int | None = None,
    ) -> Tensor: ...


class LayerKernels(NamedTuple):
    """The functions of ``gpu_layers.py``."""

    add_norm: Callable[..., tuple[Tensor, Tensor]]
    rotate_store: Callable[..., Tensor]
    silu_mul: Callable[[Tensor, Tensor], Tensor]


@cache
def layer_kernels(device: torch.device) -> LayerKernels | None:
    """The kernels for what lies between a layer's products, if they run on a device."""
    try:
        from draftwood.kernels.gpu_layers import add_norm, rotate_store, silu_mul

        x = torch.ones((1, 16), device=device)
        add_norm(x, x, x[0], 1e-6, early=True)
    except Exception as error:  # noqa: BLE001 - Triton needs a C compiler, and a GPU that it knows
        logger.warning("layers are run by tensor operations, which take longer: %s", error)
        return None
    return LayerKernels(add_norm, rotate_store, silu_mul)


def draw_for(scores: Tensor) -> DrawOnGpu | None:
    """The kernel that draws from rows of scores on their GPU; None if there is none."""
    return draw_on(scores.device) if type(scores) is Tensor and scores.is_cuda else None


@cache
def draw_on(device: torch.device) -> DrawOnGpu | None:
    """The kernel that draws on a device, if it runs there."""
    try:
        from draftwood.kernels.gpu_draws import draw_on_gpu

        zeros = torch.zeros(1, dtype=torch.int64, device=device)
        draw_on_gpu(torch.zeros((1, 4), device=device), zeros, zeros, zeros)
    except Exception as error:  # noqa: BLE001 - Triton needs a C compiler, and a GPU that it knows
        logger.warning("tokens are drawn by tensor operations, which take longer: %s", error)
        return None
    return draw_on_gpu
