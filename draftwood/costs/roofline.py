"""Predicted cost of a forward on a GPU, from memory bandwidth and arithmetic.

A prediction from data sheets, never a measurement. It serves to estimate a method's speed on a
device that is not at hand, in ratios more than in seconds. The inputs are W bytes of weights, F
operations per token in linear layers, K bytes of keys and values per cached token, A operations per
pair of a scored and a cached token, bandwidth B and peak P with the shares b and p of them that
kernels reach, and an overhead O per forward:

    T(n, c) = O + max(W / (b B), n F / (p P)) + c K / (b B) + n c A / (p P)

The maximum is Williams et al. (2009), *Roofline*: reading weights hides the arithmetic, or the
other way round. Attention's two terms are added instead, because a curve is linear in the context.
The sum is too large by at most the smaller term.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from draftwood.costs.curve import Curve
from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Gpu:
    """A GPU's data sheet, and the shares of it that software reaches.

    Attributes:
        name: of the product.
        bandwidth: of its memory, bytes per second.
        flops: dense bfloat16 operations per second of its matrix units, multiply and add counted
            as two, accumulated in float32.
        source: the data sheet.
        bandwidth_share: share of the bandwidth that kernels reach when they stream weights.
        flops_share: share of the peak that matrix products of a few hundred rows reach.
        overhead: further seconds per forward: launching kernels, synchronising.

    Raises:
        DraftwoodError: something is not above 0, or a share is above 1.
    """

    name: str
    bandwidth: float
    flops: float
    source: str
    bandwidth_share: float = 0.8
    flops_share: float = 0.6
    overhead: float = 1e-3

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0.0 and self.flops > 0.0 and self.overhead >= 0.0):
            raise DraftwoodError(
                f"{self.name} has bandwidth {self.bandwidth}, peak {self.flops} and overhead "
                f"{self.overhead}: give more than 0, and an overhead of at least 0"
            )
        for share in (self.bandwidth_share, self.flops_share):
            if not 0.0 < share <= 1.0:
                raise DraftwoodError(
                    f"{self.name} reaches {share} of what it could: give more than 0, at most 1"
                )


GPUS = {
    "h100": Gpu("H100 SXM", 3.35e12, 989.4e12, "NVIDIA H100 data sheet"),
    "h200": Gpu("H200 SXM", 4.8e12, 989.4e12, "NVIDIA H200 data sheet"),
    "a100-80": Gpu("A100 SXM 80 GB", 2.039e12, 312e12, "NVIDIA A100 80 GB data sheet"),
    "l40s": Gpu("L40S", 0.864e12, 362.05e12, "NVIDIA L40S data sheet"),
    "rtx4090": Gpu("GeForce RTX 4090", 1.008e12, 165.2e12, "NVIDIA Ada architecture, appendix A"),
}
"""GPUs by short name."""


class Shape(Protocol):
    """Widths and counts of a Llama's layers."""

    @property
    def hidden(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def ffn(self) -> int: ...


@dataclass(frozen=True)
class Workload:
    """Bytes read and operations computed by a forward.

    Attributes:
        weights: bytes of weights per forward.
        flops: operations per scored token, in linear layers.
        cache: bytes of keys and values per cached token.
        attention: operations per pair of a scored and a cached token.
    """

    weights: float
    flops: float
    cache: float
    attention: float


def workload(
    shape: Shape, vocabulary: int, width: float = 2.0, cache_width: float = 2.0
) -> Workload:
    """The workload of a dense model with gated feed-forward layers.

    Args:
        shape: its layers.
        vocabulary: tokens. The output matrix is read whole, the embedding only in a few rows.
        width: bytes per weight.
        cache_width: bytes per cached number.
    """
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    linear = shape.layers * (attention + 3 * shape.hidden * shape.ffn) + shape.hidden * vocabulary
    return Workload(
        weights=linear * width,
        flops=2.0 * linear,
        cache=2 * shape.layers * shape.kv_heads * shape.head_dim * cache_width,
        attention=4.0 * shape.layers * shape.heads * shape.head_dim,
    )


def head_workload(shape: Shape, vocabulary: int, width: float = 2.0) -> Workload:
    """The workload of one level of an EAGLE-3 head of a target.

    It is one of the target's layers, whose queries, keys and values read rows of twice the width,
    and an output matrix (Li et al., *EAGLE-3*, 2025). The projection of the tapped states is left
    out: only committed tokens pass it.

    Args:
        shape: the target's layers.
        vocabulary: tokens that the head drafts.
        width: bytes per weight and per cached number.
    """
    attention = shape.hidden * shape.head_dim * (3 * shape.heads + 4 * shape.kv_heads)
    linear = attention + shape.hidden * (3 * shape.ffn + vocabulary)
    return Workload(
        weights=linear * width,
        flops=2.0 * linear,
        cache=2 * shape.kv_heads * shape.head_dim * width,
        attention=4.0 * shape.heads * shape.head_dim,
    )


def expected(gpu: Gpu, work: Workload, limit: int = 1024) -> Curve:
    """The curve of the module's formula, exact up to at least ``limit`` tokens.

    Its table bends once, where arithmetic takes longer than reading the weights.

    Raises:
        DraftwoodError: the limit is below 2.
    """
    if limit < 2:
        raise DraftwoodError(f"a curve up to {limit} tokens has one size: give 2 or more")
    bandwidth, flops = gpu.bandwidth * gpu.bandwidth_share, gpu.flops * gpu.flops_share
    read, compute = work.weights / bandwidth, work.flops / flops
    knee = math.floor(read / compute)
    # At least up to twice the bend, so that extrapolation follows the arithmetic.
    sizes = sorted({1, max(1, knee), knee + 1, max(limit, 2 * (knee + 1))})
    return Curve(
        sizes=tuple(sizes),
        base=tuple(gpu.overhead + max(read, n * compute) for n in sizes),
        per_context=work.cache / bandwidth,
        per_pair=work.attention / flops,
    )
