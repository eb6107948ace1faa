"""The hand-over: the one place where a step's results leave the device for the host.

Turns logits into the argmax and the k likeliest tokens with their probabilities. Knows nothing of
trees. On the CPU the search runs in two stages, because ``torch.topk`` over whole rows costs more
there than a small model's layer, and a long row is searched while it is in the cache for the sum of
its exponentials; the result is the same.
"""

import math
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray

Harvest = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

# Between these logits, exp() and a sum over any vocabulary stay inside float32 without a shift.
_SAFE_LOW, _SAFE_HIGH = -40.0, 60.0

_LOG2_E = math.log2(math.e)

# Exponentials of longer rows are torch's: its exp2() uses all threads, and on one takes half the
# time of NumPy's exp(). Of shorter rows NumPy's calls cost a few microseconds less, which is more.
_LONG = 1 << 15

# Up to this many logits of short rows, two stages cost more than they save. Inside a step, whose
# weights have just gone through the cache, fewer different operations count for more than less
# arithmetic.
_FEW_LOGITS = 1 << 18

# Short rows are worked on in blocks that stay in the cache, and that the allocator does not map
# anew every time.
_BLOCK = 1 << 16

# Logits of a chunk; a width that is no multiple of 32 takes torch two or three times as long.
_WIDEST = 256

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def hand_over(logits: torch.Tensor, top_k: int, plain: bool = False) -> Harvest:
    """Host copies of what a step needs from ``logits``.

    Args:
        logits: float ``[b, q, V]`` on any device.
        top_k: how many best tokens per row; 0 for none. At most V are returned.
        plain: search with torch alone, the twin of the two-stage search.

    Returns:
        ``argmax`` int64 ``[b, q]``, the first index of the largest logit, or -1 where one of the
        row is not a number; ``top_tokens`` int64
        ``[b, q, k]``, likeliest first; ``top_probs`` float32 ``[b, q, k]``, their softmax
        probabilities, computed in float32. The order of equal logits is not defined.
    """
    b, q, vocab = logits.shape
    k = min(top_k, vocab)
    if plain or logits.device.type != "cpu":
        argmax = _numbers_only(logits, logits.argmax(dim=-1))
        best_logits, best_tokens = torch.topk(logits, k, dim=-1)
        norm = torch.logsumexp(logits.float(), dim=-1, keepdim=True)
        shares = (best_logits.float() - norm).exp_()
        # HAND-OVER: the only place that waits for the device.
        return argmax.cpu().numpy(), best_tokens.cpu().numpy(), shares.cpu().numpy()
    rows = logits.reshape(-1, vocab)
    if k == 0:
        best = rows.float().numpy().argmax(axis=1)
        best = _numbers_only(rows, torch.from_numpy(best)).numpy().reshape(b, q)
        return best, np.empty((b, q, 0), np.int64), np.empty((b, q, 0), np.float32)
    found = _long_rows(rows, k) if vocab > _LONG else _short_rows(rows.float(), k)
    best, tokens, probs = found
    best = _numbers_only(rows, torch.tensor(best)).numpy()
    return best.reshape(b, q), tokens.reshape(b, q, k), probs.reshape(b, q, k)


def _numbers_only(rows: torch.Tensor, argmax: torch.Tensor) -> torch.Tensor:
    """``argmax`` ``[..]`` of rows ``[.., V]``, overwritten: -1 where it points to a NaN.

    It does wherever a row holds one, since a search for the largest finds NaN first.
    """
    best = rows.gather(-1, argmax[..., None])[..., 0]
    return argmax.masked_fill_(best.isnan(), -1)


def _short_rows(rows: torch.Tensor, k: int) -> Harvest:
    found = None
    if rows.numel() > _FEW_LOGITS:
        found = _two_stages(rows, _chunks(rows).amax(dim=2), k)
    argmax, tokens, top = found or _one_stage(rows, k)
    values, shifts = rows.numpy(), _shifts(top)
    if shifts is not None:
        values, top = values - shifts, top - shifts
    n, vocab = values.shape
    block = max(1, _BLOCK // vocab)
    weights = np.empty((min(block, n), vocab), dtype=np.float32)
    sums = np.empty(n, dtype=np.float32)
    for i in range(0, n, block):
        part = values[i : i + block]
        np.exp(part, out=weights[: len(part)])
        np.add.reduce(weights[: len(part)], axis=1, out=sums[i : i + block])
    return argmax, tokens, np.divide(np.exp(top), sums[:, None], dtype=np.float32)


def _long_rows(rows: torch.Tensor, k: int) -> Harvest:
    n, vocab = rows.shape
    single = rows.dtype == torch.float32
    maxima, sums, buffer = torch.empty(_chunks(rows).shape[:2]), torch.empty(n), torch.empty(vocab)
    bodies = _chunks(rows) if single else repeat(_chunks(buffer))
    # Row by row: what a row comes to depends neither on the others nor on their number.
    for row, body, peaks, total in zip(rows, bodies, maxima, sums, strict=False):
        values = row if single else buffer.copy_(row)
        torch.amax(body, dim=1, out=peaks)
        torch.sum(torch.mul(values, _LOG2_E, out=buffer).exp2_(), dim=0, out=total)
    argmax, tokens, top = _two_stages(rows, maxima, k) or _one_stage(rows.float(), k)
    shifts = _shifts(top)
    if shifts is not None:
        top = top - shifts
        for i in np.flatnonzero(shifts).tolist():
            torch.mul(rows[i].float() - float(shifts[i, 0]), _LOG2_E, out=buffer)
            torch.sum(buffer.exp2_(), dim=0, out=sums[i])
    return argmax, tokens, np.divide(np.exp(top), sums.numpy()[:, None], dtype=np.float32)


def _shifts(top: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """What ``[n, 1]`` to take off each row so that its exponentials are safe; None: nothing."""
    peak = top[:, :1]
    if peak.min() > _SAFE_LOW and peak.max() < _SAFE_HIGH:
        return None
    return np.where((peak > _SAFE_LOW) & (peak < _SAFE_HIGH), np.float32(0), peak)


def _chunks(rows: torch.Tensor) -> torch.Tensor:
    """A view ``[.., chunks, width]`` of the rows, less a tail narrower than a chunk."""
    vocab = rows.shape[-1]
    width = min(_WIDEST, 1 << (vocab.bit_length() // 2))
    return rows[..., : vocab // width * width].view(*rows.shape[:-1], -1, width)


def _one_stage(rows: torch.Tensor, k: int) -> Harvest:
    """Argmax, and places and values of the ``k`` largest of each row in descending order."""
    top, places = torch.topk(rows, k, dim=1)
    return rows.numpy().argmax(axis=1), places.numpy(), top.numpy()


def _two_stages(rows: torch.Tensor, maxima: torch.Tensor, k: int) -> Harvest | None:
    """The same, given the maxima of the rows' chunks; of equal values the first place is first.

    The k-th largest maximum is a floor that at least k values reach, and barely more do; only
    chunks whose maximum reaches it are looked at again. None where that does not work: too few
    chunks, ties without end, or NaN.
    """
    n, vocab = rows.shape
    body, peaks = _chunks(rows), maxima.numpy()
    _, chunks, width = body.shape
    if chunks < k or np.isnan(peaks.max()):
        return None
    floor = np.partition(peaks, -k, axis=1)[:, -k, None]
    owner, chunk = np.nonzero(peaks >= floor)
    if len(owner) > 2 * n * k + chunks:
        return None
    pool = _values(body, owner, chunk)
    hits = np.flatnonzero(pool >= floor[owner])
    if len(hits) > n * (k + width):
        return None
    source = hits // width
    row, place, values = owner[source], chunk[source] * width + hits % width, pool.reshape(-1)[hits]
    if chunks * width < vocab:
        tail = rows[:, chunks * width :].float().numpy()
        late, column = np.nonzero(tail >= floor)
        row, values = np.concatenate((row, late)), np.concatenate((values, tail[late, column]))
        place = np.concatenate((place, column + chunks * width))
    values = values + np.float32(0)  # no negative zeros: they equal the others
    # The bits of a float32, flipped where negative, sort like its value: one integer key serves
    # to order by row, then value, then place.
    bits = values.view(np.int32)
    key = (row << 32) - (bits ^ (bits >> 31 & 0x7FFFFFFF))
    order = np.argsort(key, kind="stable")
    starts = np.searchsorted(row[order], np.arange(n))
    order = order[starts[:, None] + np.arange(k)]
    places = place[order]
    return places[:, 0], places, values[order]


def _values(
    body: torch.Tensor, row: NDArray[np.int64], chunk: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Chunks ``[m, width]``. NumPy copies them faster than torch does, but has no bfloat16."""
    bits = body.view(_BITS[body.element_size()]).numpy()[row, chunk]
    values: NDArray[np.float32] = torch.from_numpy(bits).view(body.dtype).float().numpy()
    return values
