"""Places a small Llama's weights in the tensors of a large one, without changing the function.

Notation: the small model has hidden size d and head size e, the large one D and E.

- The residual stream uses its first d channels. The others stay exactly zero: embedding columns
  and the rows of o and down are zero there.
- RMSNorm averages squares over D instead of d, so the root mean square is sqrt(d/D) of the small
  model's. Weights are scaled by sqrt(d/D), and eps by d/D.
- Rotary pair i of a head has frequency theta^(-2i/e) = theta^(-2(iE/e)/E). It goes to pair iE/e of
  the large head, which has the same frequency. Queries are scaled by sqrt(E/e), because scores are
  divided by sqrt(E) instead of sqrt(e).
- Unused weights are random, with the standard deviation of the small model's tensor, so that they
  cost what real weights cost. Their results are multiplied by zeros: in o and down, or (unused
  dimensions of a used head) in the queries.
- Additional layers come last, and have zero o and down projections.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from draftwood.lab.inflate.shapes import LlamaShape

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def inflated(
    source: Mapping[str, Tensor], small: LlamaShape, large: LlamaShape, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """The large model's state dict in float32, one tensor at a time.

    Args:
        source: the small model's state dict, float32, on the device on which the weights are made;
            without ``lm_head.weight`` if it is the embedding.
        small: the small model's shape.
        large: a shape that ``check_fits`` accepts.
        seed: seed of the unused weights, which are others on another kind of device.
    """
    noise = torch.Generator(source[EMBEDDING].device).manual_seed(seed)
    yield EMBEDDING, widened(source[EMBEDDING], large.hidden)
    for index in range(large.layers):
        # Additional layers take their scale from the source's layers in turn.
        own = f"model.layers.{index % small.layers}."
        layer = {k.removeprefix(own): v for k, v in source.items() if k.startswith(own)}
        for name, weight in layer_weights(layer, small, large, noise, idle=index >= small.layers):
            yield f"model.layers.{index}.{name}", weight
    yield NORM, norm(source[NORM], large.hidden)
    if HEAD in source:
        yield HEAD, widened(source[HEAD], large.hidden)


def layer_weights(
    layer: Mapping[str, Tensor],
    small: LlamaShape,
    large: LlamaShape,
    noise: torch.Generator,
    *,
    idle: bool = False,
    inputs: int = 1,
) -> Iterator[tuple[str, Tensor]]:
    """Weights of a large layer, by name within the layer.

    Args:
        layer: weights of a small layer.
        small: the small model's shape.
        large: the large model's shape.
        noise: generator of the unused weights, on the device of ``layer``.
        idle: whether the layer computes at the scale of ``layer`` and adds zero, instead of having
            the function of ``layer``.
        inputs: vectors of the hidden size that queries, keys and values read, one after another.
    """
    heads, kv_heads = query_heads(small, large), torch.arange(small.kv_heads)
    rotary, plain = rotary_dims(small.head_dim, large.head_dim), torch.arange(small.head_dim)
    q_rows, k_rows = (in_blocks(h, rotary, large.head_dim) for h in (heads, kv_heads))
    o_columns, v_rows = (in_blocks(h, plain, large.head_dim) for h in (heads, kv_heads))
    neurons = torch.arange(small.ffn)
    query_dims, kv_dims = large.heads * large.head_dim, large.kv_heads * large.head_dim

    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        yield name, norm(torch.ones_like(layer[name]) if idle else layer[name], large.hidden)

    for name, count, rows, vectors in (
        ("self_attn.q_proj.weight", query_dims, q_rows, inputs),
        ("self_attn.k_proj.weight", kv_dims, k_rows, inputs),
        ("self_attn.v_proj.weight", kv_dims, v_rows, inputs),
        ("mlp.gate_proj.weight", large.ffn, neurons, 1),
        ("mlp.up_proj.weight", large.ffn, neurons, 1),
    ):
        values = layer[name]
        weight = canvas(values, count, vectors * large.hidden, noise)
        if rows is q_rows and not idle:
            # Unused dimensions of the keys are random; zero queries keep them out of the scores.
            weight.view(large.heads, large.head_dim, -1)[heads] = 0
            values = values * query_scale(small.head_dim, large.head_dim)
        if not idle:
            columns = in_blocks(torch.arange(vectors), torch.arange(small.hidden), large.hidden)
            weight[rows[:, None], columns] = values
        yield name, weight

    for name, count, columns in (
        ("self_attn.o_proj.weight", query_dims, o_columns),
        ("mlp.down_proj.weight", large.ffn, neurons),
    ):
        weight = layer[name].new_zeros(large.hidden, count)
        if not idle:
            weight[: small.hidden, columns] = layer[name]
        yield name, weight


def widened(values: Tensor, hidden: int, vectors: int = 1) -> Tensor:
    """Values ``[.., vectors * d]`` as ``[.., vectors * hidden]``, with zeros after each vector."""
    small = values.shape[-1] // vectors
    wide = values.new_zeros(*values.shape[:-1], vectors * hidden)
    wide[..., in_blocks(torch.arange(vectors), torch.arange(small), hidden)] = values
    return wide


def norm(weight: Tensor, hidden: int, vectors: int = 1) -> Tensor:
    """RMSNorm weights ``[vectors * d]`` for a mean square over ``vectors * hidden`` channels."""
    return widened(weight * norm_scale(len(weight), vectors * hidden), hidden, vectors)


def norm_scale(small: int, large: int) -> float:
    """Factor of the root mean square when ``small`` channels are padded with zeros."""
    return math.sqrt(small / large)


def query_scale(small: int, large: int) -> float:
    """Factor that corrects the division of scores by sqrt(large) instead of sqrt(small)."""
    return math.sqrt(large / small)


def rotary_dims(small: int, large: int) -> Tensor:
    """Dimensions of a large head that take those of a small one, int64 [small].

    Dimensions i and i + small/2 are a pair, likewise in the large head. Multiplying by large/small
    sends both to pair i * large/small.
    """
    return torch.arange(small) * (large // small)


def query_heads(small: LlamaShape, large: LlamaShape) -> Tensor:
    """Query heads of the large model that take the small ones, int64 [small.heads].

    Each stays in the group of its key-value head, which keeps its number.
    """
    heads = torch.arange(small.heads)
    return heads // small.group * large.group + heads % small.group


def in_blocks(blocks: Tensor, within: Tensor, size: int) -> Tensor:
    """Indices of these places of these blocks of ``size``, int64 ``[blocks * within]``."""
    return (blocks[:, None] * size + within).flatten()


def canvas(like: Tensor, rows: int, columns: int, noise: torch.Generator) -> Tensor:
    """Random weights ``[rows, columns]`` with the standard deviation of ``like``."""
    # In float64, so that the result does not depend on the number of threads.
    scale = float(like.double().std())
    return like.new_empty(rows, columns).normal_(generator=noise).mul_(scale)
