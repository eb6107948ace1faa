"""Copies a forward's results to the host: argmax and top-k tokens with their probabilities.

On the CPU a kernel does it (:mod:`draftwood.runner.cpu.top`). Where there is none, the search runs
in two stages with the same result, because ``torch.topk`` over whole rows costs more than a layer
of a small model. A long row is searched while the CPU cache holds it for the softmax's sum.
"""

import math
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded
from draftwood.runner.cpu.top import top_of_rows

HostRows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

# Between these logits, exp() and a sum over any vocabulary stay inside float32 without a shift.
_SAFE_LOW, _SAFE_HIGH = -40.0, 60.0

_LOG2_E = math.log2(math.e)

# For longer rows torch's exp2() is faster: it uses all threads, and takes half the time of NumPy's
# exp() on one. For shorter rows the few microseconds that NumPy's calls save count for more.
_LONG = 1 << 15

# Up to this many logits of short rows, two stages cost more than they save: the weights have just
# gone through the CPU cache, so the number of operations matters more than the arithmetic.
_FEW_LOGITS = 1 << 18

# Short rows are processed in blocks that fit the CPU cache and reuse one allocation.
_BLOCK = 1 << 16

# Logits per chunk. torch takes two or three times as long if this is no multiple of 32.
_WIDEST = 256

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def to_host(logits: torch.Tensor, top_k: int, plain: bool = False) -> HostRows:
    """Argmax and top-k of ``logits`` on the host.

    Args:
        logits: float ``[b, q, V]`` on any device.
        top_k: tokens per row; 0 for none. At most V are returned.
        plain: search with torch alone, the plain twin of the two-stage search.

    Returns:
        ``argmax`` int64 ``[b, q]``, the first index of the largest logit, or -1 if the row holds a
        NaN; ``top_tokens`` int64 ``[b, q, k]``, likeliest first; ``top_probs`` float32
        ``[b, q, k]``, their softmax probabilities in float32. Equal logits come in any order.
    """
    return to_host_with(logits, [], top_k, plain)[0]


def unread() -> HostRows:
    """What stands for rows that stay on the device."""
    return np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0), np.float32)


def to_host_with(
    logits: torch.Tensor,
    further: Sequence[torch.Tensor],
    top_k: int,
    plain: bool = False,
    packed: torch.Tensor | None = None,
) -> tuple[HostRows, list[NDArray[Any]]]:
    """As :func:`to_host`, with further tensors, float32 or integers, in the same copy.

    ``packed``: :func:`packed_rows` of the logits, if they are known.
    """
    if logits.device.type == "cpu" and not plain and packed is None:
        return _searched(logits, top_k), [each.numpy() for each in further]
    if packed is None:
        packed = packed_rows(logits, top_k)
    numbers, *rest = downloaded([packed, *further])
    return _unpacked(numbers.reshape(*logits.shape[:-1], -1)), rest


def packed_rows(logits: torch.Tensor, top_k: int) -> torch.Tensor:
    """Argmax, top-k tokens and the bits of their probabilities, on the device of the logits.

    Args:
        logits: float ``[.., V]``.
        top_k: k, at most V.

    Returns:
        int32 ``[.., 1 + 2k]``.
    """
    k = min(top_k, logits.shape[-1])
    argmax = _numbers_only(logits, logits.argmax(dim=-1))[..., None].int()
    if not k:
        return argmax
    best_logits, best_tokens = torch.topk(logits, k, dim=-1)
    norm = torch.logsumexp(logits.float(), dim=-1, keepdim=True)
    shares = (best_logits.float() - norm).exp_()
    return torch.cat([argmax, best_tokens.int(), shares.view(torch.int32)], dim=-1)


def _unpacked(numbers: NDArray[np.int32]) -> HostRows:
    k = numbers.shape[-1] // 2
    tokens = numbers[..., : k + 1].astype(np.int64)
    shares = np.ascontiguousarray(numbers[..., k + 1 :]).view(np.float32)
    return tokens[..., 0], tokens[..., 1:], shares


def _searched(logits: torch.Tensor, top_k: int) -> HostRows:
    """The results on a CPU."""
    b, q, vocab = logits.shape
    k = min(top_k, vocab)
    rows = logits.reshape(-1, vocab)
    if k == 0:
        best = rows.float().numpy().argmax(axis=1)
        best = _numbers_only(rows, torch.from_numpy(best)).numpy().reshape(b, q)
        return best, np.empty((b, q, 0), np.int64), np.empty((b, q, 0), np.float32)
    found = top_of_rows(rows, k)
    if found is None:
        best, tokens, probs = _long_rows(rows, k) if vocab > _LONG else _short_rows(rows.float(), k)
        found = _numbers_only(rows, torch.tensor(best, device="cpu")).numpy(), tokens, probs
    best, tokens, probs = found
    return best.reshape(b, q), tokens.reshape(b, q, k), probs.reshape(b, q, k)


def _numbers_only(rows: torch.Tensor, argmax: torch.Tensor) -> torch.Tensor:
    """Set ``argmax`` ``[..]`` of rows ``[.., V]`` to -1 where a row holds a NaN, in place.

    The argmax of a row with a NaN is the NaN's index.
    """
    best = rows.gather(-1, argmax[..., None])[..., 0]
    return argmax.masked_fill_(best.isnan(), -1)


def _short_rows(rows: torch.Tensor, k: int) -> HostRows:
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


def _long_rows(rows: torch.Tensor, k: int) -> HostRows:
    n, vocab = rows.shape
    single = rows.dtype == torch.float32
    maxima, sums, buffer = (
        torch.empty(size, device="cpu") for size in (_chunks(rows).shape[:2], (n,), (vocab,))
    )
    bodies = _chunks(rows) if single else repeat(_chunks(buffer))
    # Row by row, so that a row's sum does not depend on the other rows or their number.
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
    """Shifts ``[n, 1]`` to subtract from each row so that exp() is safe; None if none is needed."""
    peak = top[:, :1]
    if peak.min() > _SAFE_LOW and peak.max() < _SAFE_HIGH:
        return None
    return np.where((peak > _SAFE_LOW) & (peak < _SAFE_HIGH), np.float32(0), peak)


def _chunks(rows: torch.Tensor) -> torch.Tensor:
    """A view ``[.., chunks, width]`` of the rows, without a tail narrower than a chunk."""
    vocab = rows.shape[-1]
    width = min(_WIDEST, 1 << (vocab.bit_length() // 2))
    return rows[..., : vocab // width * width].view(*rows.shape[:-1], -1, width)


def _one_stage(rows: torch.Tensor, k: int) -> HostRows:
    """Argmax, and indices and values of the ``k`` largest of each row in descending order."""
    top, places = torch.topk(rows, k, dim=1)
    return rows.numpy().argmax(axis=1), places.numpy(), top.numpy()


def _two_stages(rows: torch.Tensor, maxima: torch.Tensor, k: int) -> HostRows | None:
    """As :func:`_one_stage`, given the chunks' maxima; equal values come in order of index.

    At least k values, and hardly more, reach the k-th largest maximum. Only chunks whose maximum
    reaches it are searched. Returns None if that does not work: too few chunks, too many ties, or
    NaN.
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
    # The bits of a float32, flipped where negative, sort like its value. So one integer key orders
    # by row, then value; the stable sort keeps the order of indices.
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
    """Chunks ``[m, width]`` in float32. NumPy copies faster than torch, but has no bfloat16."""
    bits = body.view(_BITS[body.element_size()]).numpy()[row, chunk]
    values: NDArray[np.float32] = torch.from_numpy(bits).view(body.dtype).float().numpy()
    return values
