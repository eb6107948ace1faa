"""What a decoder layer like Llama's does between its products, in three Triton kernels.

Modeling files write it as thirty operations, each of which reads and writes a few kilobytes. On a
GPU each takes longer to begin than to compute. Results are rounded where the modeling files round;
only the order of a sum differs.
"""

import torch
import triton
import triton.language as tl

_ELEMENTS = 1024
"""Of a block of the activation."""


@triton.jit  # type: ignore[untyped-decorator]
def _scaled(wide, total, weight, count, eps, EARLY: tl.constexpr, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """Values over their root mean square, times the weight; ``total`` is the sum of squares."""
    scaled = wide * tl.rsqrt(total / count + eps)
    if EARLY:
        scaled = scaled.to(dtype).to(tl.float32)
    return scaled * weight.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    x,
    change,
    weight,
    sums,
    normed,
    x_row,
    change_row,
    eps,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    ADD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The sum of one row of two tensors, and its RMS norm."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < WIDTH
    values = tl.load(x + row * x_row + lane, mask=inside, other=0.0)
    dtype: tl.constexpr = values.dtype
    if ADD:
        other = tl.load(change + row * change_row + lane, mask=inside, other=0.0)
        values = (values.to(tl.float32) + other.to(tl.float32)).to(dtype)
        tl.store(sums + row * WIDTH + lane, values, mask=inside)
    wide = values.to(tl.float32)
    own = tl.load(weight + lane, mask=inside, other=0.0)
    result = _scaled(wide, tl.sum(wide * wide, 0), own, WIDTH, eps, EARLY, dtype)
    tl.store(normed + row * WIDTH + lane, result.to(dtype), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _rotate_store(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    cos,
    sin,
    query_weight,
    key_weight,
    entries,
    queries,
    keys,
    values,
    query_token,
    key_token,
    value_token,
    factor_token,
    query_eps,
    key_eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One head of one token: a query or a key is normed and rotated, a key or a value cached."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    lane = tl.arange(0, LANES)
    inside = lane < HALF
    entry = tl.load(entries + token)
    source = query + token * query_token + head * (2 * HALF)
    into = queries + (token * HEADS + head) * (2 * HALF)
    weight, eps = query_weight, query_eps
    if head >= HEADS + KV_HEADS:
        own = head - HEADS - KV_HEADS
        source = value + token * value_token + own * (2 * HALF)
        into = values + (entry * KV_HEADS + own) * (2 * HALF)
    elif head >= HEADS:
        source = key + token * key_token + (head - HEADS) * (2 * HALF)
        into = keys + (entry * KV_HEADS + head - HEADS) * (2 * HALF)
        weight, eps = key_weight, key_eps
    low = tl.load(source + lane, mask=inside, other=0.0)
    high = tl.load(source + HALF + lane, mask=inside, other=0.0)
    dtype: tl.constexpr = low.dtype
    if head < HEADS + KV_HEADS:
        first, second = low.to(tl.float32), high.to(tl.float32)
        if NORM:
            total = tl.sum(first * first + second * second, 0)
            own_low = tl.load(weight + lane, mask=inside, other=0.0)
            own_high = tl.load(weight + HALF + lane, mask=inside, other=0.0)
            first = _scaled(first, total, own_low, 2 * HALF, eps, EARLY, dtype)
            second = _scaled(second, total, own_high, 2 * HALF, eps, EARLY, dtype)
            first, second = first.to(dtype).to(tl.float32), second.to(dtype).to(tl.float32)
        factors = token * factor_token + lane
        cos_low = tl.load(cos + factors, mask=inside, other=0.0).to(tl.float32)
        sin_low = tl.load(sin + factors, mask=inside, other=0.0).to(tl.float32)
        cos_high = tl.load(cos + factors + HALF, mask=inside, other=0.0).to(tl.float32)
        sin_high = tl.load(sin + factors + HALF, mask=inside, other=0.0).to(tl.float32)
        across, up = (-second * sin_low).to(dtype), (first * sin_high).to(dtype)
        kept_low, kept_high = (first * cos_low).to(dtype), (second * cos_high).to(dtype)
        low = (kept_low.to(tl.float32) + across.to(tl.float32)).to(dtype)
        high = (kept_high.to(tl.float32) + up.to(tl.float32)).to(dtype)
    tl.store(into + lane, low, mask=inside)
    tl.store(into + HALF + lane, high, mask=inside)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _silu_mul(  # type: ignore[no-untyped-def]
    gate, up, output, count, width, gate_row, up_row, BLOCK: tl.constexpr
):
    """The gated activation of a block of elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    row, column = at // width, at % width
    given = tl.load(gate + row * gate_row + column, mask=inside, other=0.0)
    wide = given.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(given.dtype).to(tl.float32)
    other = tl.load(up + row * up_row + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + at, (active * other).to(given.dtype), mask=inside)


def add_norm(
    x: torch.Tensor, change: torch.Tensor | None, weight: torch.Tensor, eps: float, *, early: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """``x + change`` and its RMS norm, both ``[n, H]``, in the dtype of x.

    Args:
        x: ``[n, H]``, rows contiguous.
        change: as x; None: the sum is x.
        weight: ``[H]``.
        eps: is added to the mean square.
        early: whether the norm is rounded before it is multiplied by the weight, as Llama's.
    """
    n, width = x.shape
    normed = x.new_empty((n, width))
    sums = x if change is None else x.new_empty((n, width))
    other = x if change is None else change
    lanes = triton.next_power_of_2(width)
    # Triton launches on the current device, which may be another one.
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        _add_norm[(n,)](
            *(x, other, weight, sums, normed, x.stride(0), other.stride(0), eps),
            WIDTH=width,
            LANES=lanes,
            ADD=change is not None,
            EARLY=early,
            num_warps=min(16, max(1, lanes // 512)),
        )
    return sums, normed


def rotate_store(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    factors: tuple[torch.Tensor, torch.Tensor],
    entries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    norms: tuple[tuple[torch.Tensor, float], tuple[torch.Tensor, float]] | None,
    *,
    early: bool,
) -> torch.Tensor:
    """Rotated queries ``[n, heads, d]``; keys and values are written to the cache.

    Args:
        query: ``[n, heads * d]``, rows contiguous.
        key: ``[n, kv_heads * d]``, likewise.
        value: as key.
        factors: rotary cosines and sines, ``[1, n, d]`` or ``[1, 1, d]``, of the query's dtype.
        entries: int64 ``[n]``, the cache entry of each token.
        keys: ``[all entries, kv_heads, d]`` of the cache, contiguous.
        values: as keys.
        norms: weight ``[d]`` and eps of the RMS norms of queries and of keys; None: none.
        early: as in :func:`add_norm`.
    """
    n, (kv_heads, width) = len(query), keys.shape[1:]
    heads = query.shape[1] // width
    queries = query.new_empty((n, heads, width))
    cos, sin = factors
    (query_weight, query_eps), (key_weight, key_eps) = norms or ((cos, 0.0), (cos, 0.0))
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        _rotate_store[(n, heads + 2 * kv_heads)](
            *(query, key, value, cos, sin, query_weight, key_weight, entries),
            *(queries, keys, values, query.stride(0), key.stride(0), value.stride(0)),
            *(cos.stride(1) if cos.shape[1] > 1 else 0, query_eps, key_eps),
            HEADS=heads,
            KV_HEADS=kv_heads,
            HALF=width // 2,
            LANES=triton.next_power_of_2(width // 2),
            NORM=norms is not None,
            EARLY=early,
            num_warps=1,
            enable_fp_fusion=False,  # would leave out a rounding
        )
    return queries


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``, ``[n, I]``, of two such tensors with contiguous rows."""
    n, width = gate.shape
    output = gate.new_empty((n, width))
    with torch.cuda.device_of(gate):  # type: ignore[no-untyped-call]
        _silu_mul[(triton.cdiv(n * width, _ELEMENTS),)](
            *(gate, up, output, n * width, width, gate.stride(0), up.stride(0)), BLOCK=_ELEMENTS
        )
    return output
