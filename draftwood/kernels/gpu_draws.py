"""The token after each of some nodes, drawn in one pass over their scores on a GPU, in Triton.

As ``draws.h``, but for scores that are filtered already: random numbers are those of
``numpy.random.Philox``, and the token is the one with the largest score - log E.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _draw_blocks(  # type: ignore[no-untyped-def]
    scores,
    stride,
    size,
    seeds,
    positions,
    levels,
    best,
    tokens,
    count,
    BLOCK: tl.constexpr,
):
    """The largest key of one block of a node's scores, and its token."""
    node = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    level = tl.load(levels + node)
    # Four tokens share a block of random numbers. NumPy counts up before it makes one.
    a = (block * (BLOCK // 4) + 1 + tl.arange(0, BLOCK // 4)).to(tl.uint64)
    b = tl.zeros_like(a)
    c = b + tl.load(positions + level).to(tl.uint64)
    d = tl.zeros_like(a)
    key = b + tl.load(seeds + level).to(tl.uint64, bitcast=True)
    other_key = tl.zeros_like(a)
    for _ in tl.static_range(10):
        high = tl.umulhi(a, b * 0 + 0xD2E7470EE14C6C93)
        other_high = tl.umulhi(c, b * 0 + 0xCA5A826395121157)
        low = a * 0xD2E7470EE14C6C93
        other_low = c * 0xCA5A826395121157
        a = other_high ^ b ^ key
        c = high ^ d ^ other_key
        b = other_low
        d = low
        key += 0x9E3779B97F4A7C15
        other_key += 0xBB67AE8584CAA73B
    words = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    uniform = ((words >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16
    ids = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(scores + node * stride + ids, mask=ids < size, other=-float("inf"))
    keys = score.to(tl.float64) - tl.log(-tl.log(uniform))
    tl.store(best + node * count + block, tl.max(keys, axis=0))
    tl.store(tokens + node * count + block, block * BLOCK + tl.argmax(keys, axis=0))


def draw_on_gpu(
    scores: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor, levels: torch.Tensor
) -> torch.Tensor:
    """The token after each node, int64 ``[n]``; meaningless for rows without a finite score.

    Args:
        scores: float32 ``[n, V]``, filtered.
        seeds: int64 ``[r]``.
        positions: int64 ``[r]``, of the drawn tokens.
        levels: int64 ``[n]``, the index in ``seeds`` and ``positions`` of each node's numbers.
    """
    n, size = scores.shape
    count = triton.cdiv(size, BLOCK)
    best = torch.empty((n, count), dtype=torch.float64, device=scores.device)
    tokens = torch.empty((n, count), dtype=torch.int64, device=scores.device)
    # Triton launches on the current device, which may be another one.
    with torch.cuda.device_of(scores):  # type: ignore[no-untyped-call]
        _draw_blocks[(n, count)](
            *(scores, scores.stride(0), size, seeds, positions, levels, best, tokens, count),
            BLOCK=BLOCK,
        )
    return tokens.gather(1, best.argmax(dim=1, keepdim=True))[:, 0]
