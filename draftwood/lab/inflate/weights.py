"""A small Llama's weights inside the tensors of a large one, so that the function is unchanged.

Pure tensor functions: knows state-dict names of a Llama layer, and nothing of models or files.
Notation: the small model has hidden size d and head size e, the large one D and E.

- The residual stream uses its first d channels; the rest stay exactly zero, because nothing
  writes to them (embedding columns and the rows of o and down are zero there).
- RMSNorm averages squares over D instead of d, so the root mean square is sqrt(d/D) of the small
  model's: weights are scaled by sqrt(d/D), and eps by d/D.
- Rotary pair i of a head turns by theta^(-2i/e) = theta^(-2(iE/e)/E): it goes to pair iE/e of the
  large head, which has the same frequency. Queries are scaled by sqrt(E/e), as scores are divided
  by sqrt(E) instead of sqrt(e).
- What the small model has no use for is random, at the standard deviation of the small model's
  same tensor, so that it costs what real weights cost; what comes of it meets zeros: in o and
  down, or (score dimensions of a used head) in the queries.
- Layers beyond the small model's come last, and have zero o and down projections.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from draftwood.lab.inflate.shapes import Shape

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def inflated(
    source: Mapping[str, Tensor], small: Shape, large: Shape, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """The large model's state dict, one tensor at a time, in float32.

    Args:
        source: the small model's state dict, float32; without ``lm_head.weight`` if that is the
            embedding.
        small: the small model's shape.
        large: a shape that ``check_fits`` accepts.
        seed: of what is random. The same seed gives the same weights.
    """
    noise = torch.Generator().manual_seed(seed)
    yield EMBEDDING, widened(source[EMBEDDING], large.hidden)
    for index in range(large.layers):
        # Layers beyond the source's take their scale from its layers in turn.
        own = f"model.layers.{index % small.layers}."
        layer = {k.removeprefix(own): v for k, v in source.items() if k.startswith(own)}
        if index < small.layers:
            made = filled_layer(layer, small, large, noise)
        else:
            made = idle_layer(layer, small, large, noise)
        for name, weight in made:
            yield f"model.layers.{index}.{name}", weight
    yield NORM, norm(source[NORM], large.hidden)
    if HEAD in source:
        yield HEAD, widened(source[HEAD], large.hidden)


def filled_layer(
    layer: Mapping[str, Tensor], small: Shape, large: Shape, noise: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """One layer that does what the small layer does, names as within a layer."""
    heads, kv_heads = query_heads(small, large), torch.arange(small.kv_heads)
    turned, plain = rotary_dims(small.head_dim, large.head_dim), torch.arange(small.head_dim)
    q_rows, k_rows = (rows_of(h, turned, large.head_dim) for h in (heads, kv_heads))
    o_columns, v_rows = (rows_of(h, plain, large.head_dim) for h in (heads, kv_heads))
    neurons = torch.arange(small.ffn)

    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        yield name, norm(layer[name], large.hidden)

    name = "self_attn.q_proj.weight"
    queries = canvas(layer[name], large.heads * large.head_dim, large.hidden, noise)
    # The keys' unused dimensions are random: only zero queries keep them out of the scores.
    queries.view(large.heads, large.head_dim, large.hidden)[heads] = 0
    scale = query_scale(small.head_dim, large.head_dim)
    yield name, with_rows(queries, q_rows, layer[name] * scale)

    for name, rows, count in (
        ("self_attn.k_proj.weight", k_rows, large.kv_heads * large.head_dim),
        ("self_attn.v_proj.weight", v_rows, large.kv_heads * large.head_dim),
        ("mlp.gate_proj.weight", neurons, large.ffn),
        ("mlp.up_proj.weight", neurons, large.ffn),
    ):
        yield name, with_rows(canvas(layer[name], count, large.hidden, noise), rows, layer[name])

    for name, columns, count in (
        ("self_attn.o_proj.weight", o_columns, large.heads * large.head_dim),
        ("mlp.down_proj.weight", neurons, large.ffn),
    ):
        weight = torch.zeros(large.hidden, count)
        weight[: small.hidden, columns] = layer[name]
        yield name, weight


def idle_layer(
    layer: Mapping[str, Tensor], small: Shape, large: Shape, noise: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """One layer that computes at the scale of the small ``layer`` and adds nothing."""
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        yield name, norm(torch.ones(small.hidden), large.hidden)
    for name, count in (
        ("self_attn.q_proj.weight", large.heads * large.head_dim),
        ("self_attn.k_proj.weight", large.kv_heads * large.head_dim),
        ("self_attn.v_proj.weight", large.kv_heads * large.head_dim),
        ("mlp.gate_proj.weight", large.ffn),
        ("mlp.up_proj.weight", large.ffn),
    ):
        yield name, canvas(layer[name], count, large.hidden, noise)
    yield "self_attn.o_proj.weight", torch.zeros(large.hidden, large.heads * large.head_dim)
    yield "mlp.down_proj.weight", torch.zeros(large.hidden, large.ffn)


def widened(table: Tensor, hidden: int) -> Tensor:
    """An embedding or lm_head [V, d] as [V, hidden], zero beyond its own columns."""
    wide = torch.zeros(table.shape[0], hidden)
    wide[:, : table.shape[1]] = table
    return wide


def norm(weight: Tensor, hidden: int) -> Tensor:
    """RMSNorm weights [d] as [hidden], for a mean square over ``hidden`` channels."""
    wide = torch.zeros(hidden)
    wide[: len(weight)] = weight * norm_scale(len(weight), hidden)
    return wide


def norm_scale(small: int, large: int) -> float:
    """By how much the root mean square shrinks when zeros fill ``small`` channels up."""
    return math.sqrt(small / large)


def query_scale(small: int, large: int) -> float:
    """What makes up for dividing scores by sqrt(large) instead of sqrt(small)."""
    return math.sqrt(large / small)


def rotary_dims(small: int, large: int) -> Tensor:
    """Where the dimensions of a small head go in a large one, int64 [small].

    Dimensions i and i + small/2 are a pair, and likewise in the large head; multiplying by
    large/small sends both to pair i * large/small at once.
    """
    return torch.arange(small) * (large // small)


def query_heads(small: Shape, large: Shape) -> Tensor:
    """Which large query heads serve the small ones, int64 [small.heads].

    Each goes to the group of its own key-value head, which keeps its number.
    """
    each = torch.arange(small.heads)
    return each // small.group * large.group + each % small.group


def rows_of(heads: Tensor, dims: Tensor, head_dim: int) -> Tensor:
    """Rows of a projection for these dimensions of these heads, int64 [heads * dims]."""
    return (heads[:, None] * head_dim + dims).flatten()


def canvas(like: Tensor, rows: int, columns: int, noise: torch.Generator) -> Tensor:
    """Random weights [rows, columns] with the standard deviation of ``like``."""
    # In float64, so that a sum split among threads does not show in the result.
    return torch.randn(rows, columns, generator=noise).mul_(float(like.double().std()))


def with_rows(weight: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """``weight`` with ``values`` [rows, d] in these rows' first d columns; changes it."""
    weight[rows, : values.shape[1]] = values
    return weight
