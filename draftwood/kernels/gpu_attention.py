"""Attention of token trees over the KV cache on a GPU, in Triton.

As :mod:`draftwood.runner.attention` with masks, but without them. A query sees the cached tokens
of its sequence, and of the tree behind them the nodes whose bits are set in its ancestor words.
All that differs from one step to the next is in tensors, so that one compilation, or one captured
graph, serves all lengths. Blocks of keys that hold cached tokens alone need no bits. The keys are
split among programs, whose shares are merged by a second kernel ("Flash-Decoding", 2023).
"""

import torch
import triton
import triton.language as tl

from draftwood.kernels.gpu import BLOCK, Seen

_HIDDEN = tl.constexpr(-1.0e30)
"""A score that counts for nothing; the difference of two of them is 0 and not NaN."""
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit  # type: ignore[untyped-decorator]
def _first_block(lowest, WINDOW: tl.constexpr, CHUNK: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first block of keys of which one is within reach of a query at a position."""
    first = 0
    if WINDOW > 0:
        first = tl.maximum(lowest - WINDOW + 1, 0) // KEYS
    if CHUNK > 0:
        first = tl.maximum(first, lowest // CHUNK * CHUNK // KEYS)
    return first


@triton.jit  # type: ignore[untyped-decorator]
def _within_reach(shown, position, at, WINDOW: tl.constexpr, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which of the shown keys, at positions, are within reach of queries at others."""
    if WINDOW > 0:
        shown = shown & (position[None, :] > at[:, None] - WINDOW)
    if CHUNK > 0:
        shown = shown & ((position // CHUNK)[None, :] == (at // CHUNK)[:, None])
    return shown


@triton.jit  # type: ignore[untyped-decorator]
def _capped(scores, SOFTCAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scores through a hyperbolic tangent, where exp may reach infinity."""
    if SOFTCAP > 0:
        scores = SOFTCAP * (1 - 2 / (tl.exp(2 / SOFTCAP * scores) + 1))
    return scores


@triton.jit
def _ancestors(shown, node, words):  # type: ignore[no-untyped-def]
    """Which of the shown keys queries see, by their words; a key before the tree has node < 0."""
    own = tl.maximum(node, 0)
    word = tl.load(
        words[:, None] + (own // 64)[None, :],
        mask=shown & (node >= 0)[None, :],
        other=0,
    )
    bit = (word >> (own % 64).to(tl.int64)[None, :]) & 1
    return shown & ((node < 0)[None, :] | (bit == 1))


# They are slices of one buffer, whose alignment says nothing.
_UNALIGNED = ["starts", "counts", "lengths", "done", "rows", "table", "words", "depths"]


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["row_blocks", "nodes", "width", "tokens"],
    do_not_specialize_on_alignment=_UNALIGNED,
)
def _attend(  # type: ignore[no-untyped-def]  # noqa: PLR0915 - a program has no structures
    queries,
    keys,
    values,
    output,
    shares,
    sinks,
    starts,
    counts,
    lengths,
    done,
    rows,
    table,
    words,
    depths,
    row_blocks,
    nodes,
    width,
    tokens,
    query_token,
    query_head,
    key_entry,
    key_head,
    value_entry,
    value_head,
    output_token,
    scale,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    SINKS: tl.constexpr,
    TREES: tl.constexpr,
    UNSPLIT: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    VALUE_LANES: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of a sequence's queries of one key head, over a share of its keys."""
    sequence = tl.program_id(0) // KV_HEADS
    head = tl.program_id(0) % KV_HEADS
    split = tl.program_id(2)
    count = tl.load(counts + sequence).to(tl.int32)
    begin = tl.program_id(1) * ROWS
    if begin >= count * GROUP:
        return
    # The query heads of a key head lie behind one another.
    row = begin + tl.arange(0, ROWS)
    live = row < count * GROUP
    query = row // GROUP
    token = tl.load(starts + sequence) + query
    lane = tl.arange(0, LANES)
    value_lane = tl.arange(0, VALUE_LANES)
    own_head = head * GROUP + row % GROUP
    q = tl.load(
        queries + (token * query_token + own_head * query_head)[:, None] + lane[None, :],
        mask=live[:, None] & (lane < WIDTH)[None, :],
        other=0.0,
    )
    length = tl.load(lengths + sequence).to(tl.int32)
    first = tl.load(done + sequence).to(tl.int32)
    firsts = table + tl.load(rows + sequence) * row_blocks
    # No query sees a node behind it.
    total = length + first + tl.minimum((begin + ROWS - 1) // GROUP + 1, count)
    own_depths = depths + sequence * nodes
    at = length + first + query
    lowest = length + first + begin // GROUP
    if TREES:
        lowest = length
        if WINDOW > 0 or CHUNK > 0:
            at = length + tl.load(own_depths + first + query, mask=live, other=0).to(tl.int32)
    low = _first_block(lowest, WINDOW, CHUNK, KEYS)
    blocks = tl.cdiv(total, KEYS) - low
    each = tl.cdiv(blocks, tl.num_programs(2))
    start = low + split * each
    stop = tl.minimum(start + each, low + blocks)
    top = tl.full([ROWS], _HIDDEN, tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, VALUE_LANES], tl.float32)
    for block in range(start, stop):
        entry = block * KEYS + tl.arange(0, KEYS)
        inside = entry < total
        # All keys of a block of the kernel are in one of the cache.
        first_entry = tl.load(firsts + block * KEYS // BLOCK)
        cached = first_entry + block * KEYS % BLOCK + tl.arange(0, KEYS)
        k = tl.load(
            keys + head * key_head + (cached * key_entry)[None, :] + lane[:, None],
            mask=inside[None, :] & (lane < WIDTH)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision="ieee", out_dtype=tl.float32)
        scores = _capped(scores * scale, SOFTCAP)
        shown = live[:, None] & inside[None, :]
        node = entry - length
        position = entry
        if TREES:
            if (block + 1) * KEYS > length:
                shown = _ancestors(shown, node, words + token * width)
            if WINDOW > 0 or CHUNK > 0:
                depth = tl.load(
                    own_depths + tl.maximum(node, 0), mask=inside & (node >= 0), other=0
                ).to(tl.int32)
                position = tl.where(node < 0, entry, length + depth)
        else:
            shown = shown & (entry[None, :] <= at[:, None])
        shown = _within_reach(shown, position, at, WINDOW, CHUNK)
        scores = tl.where(shown, scores * _LOG2E, _HIDDEN)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(shown, tl.exp2(scores - higher[:, None]), 0.0)
        fade = tl.exp2(top - higher)
        # An entry that was never written may hold anything.
        v = tl.load(
            values + head * value_head + (cached * value_entry)[:, None] + value_lane[None, :],
            mask=inside[:, None] & (value_lane < VALUE_WIDTH)[None, :],
            other=0.0,
        )
        part = tl.dot(weights.to(v.dtype), v, input_precision="ieee", out_dtype=tl.float32)
        found = found * fade[:, None] + part
        sums = sums * fade + tl.sum(weights, 1)
        top = higher
    stored = live[:, None] & (value_lane < VALUE_WIDTH)[None, :]
    if UNSPLIT:
        if SINKS:
            sums += tl.exp2(tl.load(sinks + own_head).to(tl.float32) * _LOG2E - top)
        found = found / tl.where(live, sums, 1.0)[:, None]
        into = (token * output_token + own_head * VALUE_WIDTH)[:, None] + value_lane[None, :]
        tl.store(output + into, found.to(output.dtype.element_ty), mask=stored)
    else:
        share = (split * tokens + token) * (KV_HEADS * GROUP) + own_head
        tl.store(output + share[:, None] * VALUE_WIDTH + value_lane[None, :], found, mask=stored)
        tl.store(shares + share * 2, top, mask=live)
        tl.store(shares + share * 2 + 1, sums, mask=live)


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _merge(  # type: ignore[no-untyped-def]
    parts,
    shares,
    output,
    sinks,
    tokens,
    SINKS: tl.constexpr,
    HEADS: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    VALUE_LANES: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The output of one query and head, from the shares of its keys."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    lane = tl.arange(0, VALUE_LANES)
    share = (tl.arange(0, SPLITS) * tokens + token) * HEADS + head
    tops = tl.load(shares + share * 2)
    sums = tl.load(shares + share * 2 + 1)
    top = tl.max(tops, 0)
    weights = tl.exp2(tops - top)
    # A query of no sequence has no keys, and its parts were never written.
    found = tl.load(
        parts + share[:, None] * VALUE_WIDTH + lane[None, :],
        mask=(sums > 0)[:, None] & (lane < VALUE_WIDTH)[None, :],
        other=0.0,
    )
    total = tl.sum(sums * weights, 0)
    if SINKS:
        total += tl.exp2(tl.load(sinks + head).to(tl.float32) * _LOG2E - top)
    mean = tl.sum(found * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    into = output + (token * HEADS + head) * VALUE_WIDTH + lane
    tl.store(into, mean.to(output.dtype.element_ty), mask=lane < VALUE_WIDTH)


def attend_trees(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: Seen,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    window: int | None = None,
    chunk: int | None = None,
    splits: int | None = None,
) -> torch.Tensor:
    """Attention output ``[n, heads, value width]``, in the dtype of the queries.

    Args:
        queries: ``[n, heads, width]``, the last dimension contiguous; float16, bfloat16 or float32.
        keys: ``[entries, kv_heads, width]`` of the cache, the last dimension contiguous.
        values: ``[entries, kv_heads, value width]``, likewise.
        seen: the keys that each query sees.
        scale: of the scores; None: ``width ** -0.5``.
        softcap: c; scores become ``c * tanh(scores / c)``.
        sinks: ``[heads]``, a further score in the softmax that has no value.
        window: keys at a distance of ``window`` positions or more are hidden.
        chunk: keys outside the query's block of ``chunk`` positions are hidden.
        splits: programs that share the keys of a query, a power of two; None: by the number of
            sequences and queries, so that sums do not depend on the lengths in a batch.
    """
    n, heads, width = queries.shape
    kv_heads, value_width = values.shape[1:]
    group, b = heads // kv_heads, len(seen.lengths)
    rows = min(64, max(16, triton.next_power_of_2(group * seen.most)))
    blocks = triton.cdiv(group * seen.most, rows)
    if splits is None:
        splits = _splits(b * kv_heads * blocks, queries.device)
    lanes, value_lanes = (max(16, triton.next_power_of_2(each)) for each in (width, value_width))
    row_bytes = max(lanes, value_lanes) * queries.element_size()
    unsplit = splits == 1
    # A query of no sequence is not computed: its output, or its shares, must be zero.
    shape = (n, heads, value_width)
    if unsplit:
        output = queries.new_zeros(shape) if seen.padded else queries.new_empty(shape)
        parts = shares = output
    else:
        output = queries.new_empty(shape)
        parts = queries.new_empty((splits, *shape), dtype=torch.float32)
        sizes = (splits, n, heads, 2)
        new = queries.new_zeros if seen.padded else queries.new_empty
        shares = new(sizes, dtype=torch.float32)
    beside = sinks if sinks is not None else shares
    # Triton launches on the current device, which may be another one.
    with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]
        _attend[(b * kv_heads, blocks, splits)](
            *(queries, keys, values, parts, shares, beside),
            *seen[:8],
            *(seen.table.stride(0), seen.depths.shape[1], seen.words.shape[1], n),
            *queries.stride()[:2],
            *keys.stride()[:2],
            *values.stride()[:2],
            heads * value_width,
            width**-0.5 if scale is None else scale,
            SOFTCAP=softcap or 0.0,
            WINDOW=window or 0,
            CHUNK=chunk or 0,
            SINKS=sinks is not None,
            TREES=seen.words.shape[1] > 0,
            UNSPLIT=unsplit,
            KV_HEADS=kv_heads,
            GROUP=group,
            WIDTH=width,
            VALUE_WIDTH=value_width,
            LANES=lanes,
            VALUE_LANES=value_lanes,
            ROWS=rows,
            KEYS=64 if row_bytes <= 256 else 32 if row_bytes <= 512 else 16,
            BLOCK=BLOCK,
            num_stages=2,
        )
        if not unsplit:
            _merge[(n, heads)](
                *(parts, shares, output, beside, n),
                SINKS=sinks is not None,
                HEADS=heads,
                VALUE_WIDTH=value_width,
                VALUE_LANES=value_lanes,
                SPLITS=splits,
            )
    return output


def _splits(programs: int, device: torch.device) -> int:
    """The power of two that gives every multiprocessor about two programs, 32 at most."""
    processors = 1
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = max(1, 2 * processors // programs)
    return int(min(32, 1 << (wanted.bit_length() - 1)))
