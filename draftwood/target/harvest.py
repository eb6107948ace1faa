"""The hand-over: the one place where a step's results leave the device for the host.

Turns logits into the argmax and the k likeliest tokens with their probabilities. Knows nothing of
trees. On the CPU the search runs in two stages, because ``torch.topk`` over whole rows costs more
there than a small model's layer; the result is the same.
"""

import numpy as np
import torch
from numpy.typing import NDArray

Harvest = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

# Between these logits, exp() and a sum over any vocabulary stay inside float32 without a shift.
_SAFE_LOW, _SAFE_HIGH = -40.0, 60.0

# Up to this many rows, and up to this many logits, two stages cost more than they save. Inside a
# step, whose weights have just gone through the cache, fewer different operations count for more
# than less arithmetic.
_FEW_ROWS = 4
_FEW_LOGITS = 1 << 18
_BLOCK = 1 << 16


def hand_over(logits: torch.Tensor, top_k: int, plain: bool = False) -> Harvest:
    """Host copies of what a step needs from ``logits``.

    Args:
        logits: float ``[b, q, V]`` on any device.
        top_k: how many best tokens per row; 0 for none. At most V are returned.
        plain: search with torch alone, the twin of the two-stage search.

    Returns:
        ``argmax`` int64 ``[b, q]``, the first index of the largest logit; ``top_tokens`` int64
        ``[b, q, k]``, likeliest first; ``top_probs`` float32 ``[b, q, k]``, their softmax
        probabilities, computed in float32. The order of equal logits is not defined.
    """
    b, q, vocab = logits.shape
    k = min(top_k, vocab)
    if plain or logits.device.type != "cpu":
        argmax = logits.argmax(dim=-1)
        best_logits, best_tokens = torch.topk(logits, k, dim=-1)
        norm = torch.logsumexp(logits.float(), dim=-1, keepdim=True)
        shares = (best_logits.float() - norm).exp_()
        # HAND-OVER: the only place that waits for the device.
        return argmax.cpu().numpy(), best_tokens.cpu().numpy(), shares.cpu().numpy()
    rows = logits.reshape(-1, vocab).float()
    values = rows.numpy()
    if k == 0:
        argmax = values.argmax(axis=1).reshape(b, q)
        return argmax, np.empty((b, q, 0), np.int64), np.empty((b, q, 0), np.float32)
    large = len(values) > _FEW_ROWS and values.size > _FEW_LOGITS
    found = _two_stages(rows, k) if large else None
    if found is None:
        logits_found, places = torch.topk(rows, k, dim=1)
        best, tokens, top = values.argmax(axis=1), places.numpy(), logits_found.numpy()
    else:
        best, tokens, top = found
    probs = _probabilities(values, top)
    return best.reshape(b, q), tokens.reshape(b, q, k), probs.reshape(b, q, k)


def _probabilities(values: NDArray[np.float32], top: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = top[:, :1]
    if not (peak.min() > _SAFE_LOW and peak.max() < _SAFE_HIGH):
        values, top = values - peak, top - peak
    n, vocab = values.shape
    # In blocks that stay in the cache, and that the allocator does not map anew every time.
    # NumPy's calls cost a few microseconds less than torch's, which is most of the time here.
    block = max(1, _BLOCK // vocab)
    weights = np.empty((min(block, n), vocab), dtype=np.float32)
    total = np.empty(n, dtype=np.float32)
    for i in range(0, n, block):
        part = values[i : i + block]
        np.exp(part, out=weights[: len(part)])
        np.add.reduce(weights[: len(part)], axis=1, out=total[i : i + block])
    return np.divide(np.exp(top), total[:, None], dtype=np.float32)


def _two_stages(
    rows: torch.Tensor, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]] | None:
    """Argmax, and places and values of the k largest of each row in descending order.

    A row is cut into chunks. The k chunks with the largest maxima contain a valid top k, and the
    smallest of those maxima bounds it from below, which leaves barely more than k candidates to
    sort. None where that does not work: too few chunks, ties without end, or NaN.
    """
    n, vocab = rows.shape
    width = 1 << (vocab.bit_length() // 2)
    chunks = vocab // width
    if chunks <= k:
        return None
    cut = chunks * width
    body = rows.as_strided((n, chunks, width), (vocab, width, 1))
    maxima, picked = (part.numpy() for part in body.amax(dim=2).topk(k, dim=1))
    floor = maxima[:, -1:]
    picked.sort(axis=1)
    pool = body.numpy()[np.arange(n)[:, None], picked].reshape(n, -1)
    if cut < vocab:
        pool = np.concatenate((pool, rows.numpy()[:, cut:]), axis=1)
        picked = np.concatenate((picked, np.full((n, 1), chunks)), axis=1)
    size = pool.shape[1]
    hits = np.flatnonzero(pool >= floor)
    row = hits // size
    counts = np.bincount(row, minlength=n)
    if counts.min() < k or hits.size > n * (k + width):
        return None
    values = pool.reshape(-1)[hits] + np.float32(0)  # no negative zeros: they equal the others
    # The bits of a float32, flipped where negative, sort like its value: one integer key serves
    # to order by row, then value, then place.
    bits = values.view(np.int32)
    key = (row << 32) - (bits ^ (bits >> 31 & 0x7FFFFFFF))
    order = np.argsort(key, kind="stable")
    order = order[(np.cumsum(counts) - counts)[:, None] + np.arange(k)]
    top = values[order]
    if (top[:, 0] == floor[:, 0]).any():
        return None
    every = np.arange(n)[:, None]
    column = hits[order] - every * size
    # The tail is one more chunk; it is narrower than the others.
    chunk = column // width
    places = picked.reshape(-1)[every * picked.shape[1] + chunk] * width + column - chunk * width
    return places[:, 0], places, top
