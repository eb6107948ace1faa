"""What a forward should cost on a GPU, from its memory bandwidth and its arithmetic.

An expectation from data sheets, never a measurement: good for asking how a method would fare on a
device that is not at hand, in ratios more than in seconds. With W bytes of weights that every
forward reads, F operations a token in its linear layers, K bytes of keys and values a cached token,
A operations for each pair of a scored and a cached token, bandwidth B, peak P, the parts of them
that kernels reach, and an overhead O a forward:

    T(n, c) = O + max(W / (b B), n F / (p P)) + c K / (b B) + n c A / (p P)

The first maximum is Williams et al. (2009), *Roofline*: reading weights hides the arithmetic or the
other way round. Attention's two terms are added instead, because a curve is linear in the context;
that is too much by at most the smaller of them. Refuses to know what was ever timed.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from draftwood.costs.curve import Curve
from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Gpu:
    """A device as its maker describes it, and what software gets of it.

    Attributes:
        name: what it is called.
        bandwidth: of its memory, bytes a second.
        flops: dense bfloat16 operations a second of its matrix units, multiply and add counted as
            two, accumulated in float32.
        source: the data sheet.
        bandwidth_share: part of the bandwidth that kernels reach when they stream weights.
        flops_share: part of the peak that matrix products of a few hundred rows reach.
        overhead: seconds a forward that neither hides: launching kernels, synchronising.

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
"""By short name."""


class Shape(Protocol):
    """Widths and counts of a Llama's layers, as :class:`draftwood.lab.inflate.shapes.Shape` has."""

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
    """What a forward reads and computes.

    Attributes:
        weights: bytes of weights that every forward reads.
        flops: operations for each scored token, in linear layers.
        cache: bytes of keys and values of each cached token.
        attention: operations for each pair of a scored token and a cached one.
    """

    weights: float
    flops: float
    cache: float
    attention: float


def workload(
    shape: Shape, vocabulary: int, width: float = 2.0, cache_width: float = 2.0
) -> Workload:
    """Of a dense model with gated feed-forward layers.

    Args:
        shape: its layers.
        vocabulary: tokens; the output matrix is read, of the embedding only a few rows are.
        width: bytes a weight.
        cache_width: bytes a cached number.
    """
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    linear = shape.layers * (attention + 3 * shape.hidden * shape.ffn) + shape.hidden * vocabulary
    return Workload(
        weights=linear * width,
        flops=2.0 * linear,
        cache=2 * shape.layers * shape.kv_heads * shape.head_dim * cache_width,
        attention=4.0 * shape.layers * shape.heads * shape.head_dim,
    )


def workload_of(config: Any, width: float = 2.0, cache_width: float = 2.0) -> Workload:
    """The same from a transformers configuration of a dense model.

    Raises:
        DraftwoodError: it does not name the sizes that are needed, or has experts, of which a
            forward reads as many as its tokens choose.
    """
    config = config.get_text_config()
    experts = ("num_experts", "num_local_experts", "n_routed_experts")
    if any(getattr(config, name, None) for name in experts):
        raise DraftwoodError(
            f"a {config.model_type} has experts, and what a forward reads depends on its tokens: "
            "measure it"
        )
    try:
        heads = int(config.num_attention_heads)
        found = _Named(
            hidden=int(config.hidden_size),
            layers=int(config.num_hidden_layers),
            heads=heads,
            kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            ffn=int(config.intermediate_size),
        )
        return workload(found, int(config.vocab_size), width, cache_width)
    except (AttributeError, TypeError) as error:
        raise DraftwoodError(
            f"the configuration of this {config.model_type} does not say how large it is "
            f"({error}): give a shape instead"
        ) from error


def expected(gpu: Gpu, work: Workload, limit: int = 1024) -> Curve:
    """The curve of the module's formula, exact up to ``limit`` tokens at least.

    Its table bends once, where arithmetic overtakes reading the weights.

    Raises:
        DraftwoodError: the limit is below 2.
    """
    if limit < 2:
        raise DraftwoodError(f"a curve up to {limit} tokens has one size: give 2 or more")
    bandwidth, flops = gpu.bandwidth * gpu.bandwidth_share, gpu.flops * gpu.flops_share
    read, compute = work.weights / bandwidth, work.flops / flops
    knee = math.floor(read / compute)
    # Up to twice the bend at least, so that what lies beyond is continued along arithmetic.
    sizes = sorted({1, max(1, knee), knee + 1, max(limit, 2 * (knee + 1))})
    return Curve(
        sizes=tuple(sizes),
        base=tuple(gpu.overhead + max(read, n * compute) for n in sizes),
        per_context=work.cache / bandwidth,
        per_pair=work.attention / flops,
    )


@dataclass(frozen=True)
class _Named:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
