"""Draws tokens from rows of q, with and without replacement: Gumbel top-k.

Source: Kool, van Hoof and Welling, *Stochastic Beams and Where to Find Them* (2019). Every token
gets the time T = E / q with E ~ Exp(1), which is exp(-x) of the paper's perturbed log-probability
x. The k tokens with the smallest times, in order, are k draws without replacement. Independent
draws take the smallest time each, with numbers of their own. As in the target's draws
(:mod:`draftwood.sampling.noise`), a rounding error in q matters only if two times nearly tie.

A large vocabulary (:func:`gumbel_top_k_blocks`) needs few of the numbers. Its tokens are divided
into blocks. The smallest time of a block is Exp(sum of its q), and is drawn first, one number per
block. Only the k blocks with the smallest of these can hold one of the k smallest times, because
each of these blocks has a token that comes before all other blocks. So only their tokens get times.
A block's times are then shifted by one amount, so that their minimum is the time drawn first.

This leaves the law of all times unchanged. Of independent exponential times, the index of the
minimum and the differences to the minimum are independent of the minimum itself, because the
exponential distribution has no memory. So the minimum may be replaced by another number of the same
law, Exp(sum of q), that is independent of everything else.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded, uploaded
from draftwood.tree import Draw

WHOLE = 4096
"""Vocabularies up to this size are drawn from as a whole: there, blocks cost more than they save.
The choice must not depend on anything that varies from step to step."""

WIDTH = 64
"""Tokens in a block."""

# Float64 for two reasons. A float32 exponential has steps of about 1e-7 and is zero once in about
# 1e7 draws, which is too coarse for less likely tokens. And if q is tiny, as at low temperatures,
# E / q would be infinite, and the next best token would be drawn by a wrong law.
_LEAST = np.finfo(np.float64).tiny


class GumbelTopK(Protocol):
    """A variant of Gumbel top-k. All variants have one distribution, but draw different tokens."""

    def __call__(
        self, q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator], /
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """``k`` draws from each row.

        A row's draws depend on that row and its generator only. A smaller ``k`` gives a prefix of a
        larger one.

        Args:
            q: float32 ``[m, V]``, unnormalised; a row of NaN draws nothing.
            k: draws from each row.
            draw: ``IID`` with replacement, else without.
            generators: a fresh one for each row.

        Returns:
            Tokens int64 ``[m, k]``, -1 if no token of positive probability is left, and their q.
        """
        ...


def gumbel_top_k(
    q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The faster variant for the vocabulary's size; see :class:`GumbelTopK`."""
    return (gumbel_top_k_whole if q.shape[1] <= WHOLE else gumbel_top_k_blocks)(
        q, k, draw, generators
    )


def gumbel_top_k_whole(
    q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The variant that draws a number for every token; see :class:`GumbelTopK`."""
    # HAND-OVER: the random numbers come from the host.
    probs = q.cpu().numpy()
    rows = np.arange(len(probs))
    picks = np.empty((len(probs), k), dtype=np.int64)
    # 1 / T instead of T: finite where q is zero.
    keys = np.empty(probs.shape, dtype=np.float64)
    for i in range(k):
        if i == 0 or draw is Draw.IID:
            for row, generator in zip(keys, generators, strict=True):
                generator.standard_exponential(out=row)
            np.maximum(keys, _LEAST, out=keys)
            np.divide(probs, keys, out=keys)
        best = keys.argmax(axis=1)
        picks[:, i] = np.where(keys[rows, best] > 0, best, -1)
        keys[rows, best] = 0
    drawn = np.take_along_axis(probs, np.maximum(picks, 0), axis=1)
    return picks, np.where(picks < 0, np.float32(0), drawn)


def gumbel_top_k_blocks(
    q: torch.Tensor,
    k: int,
    draw: Draw,
    generators: Sequence[np.random.Generator],
    width: int = WIDTH,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The variant for large vocabularies, in blocks of ``width``; see :class:`GumbelTopK`."""
    # With replacement: k independent rounds of one draw; without: one round of k draws.
    rounds, per_round = (k, min(k, 1)) if draw is Draw.IID else (1, k)
    if q.shape[1] % width:
        q = torch.nn.functional.pad(q, (0, -q.shape[1] % width))
    blocks = q.view(len(q), -1, width)
    count = blocks.shape[1]
    opened = min(per_round, count)
    numbers = np.empty((len(q), rounds, count + opened * width), dtype=np.float64)
    for row, generator in zip(numbers, generators, strict=True):
        generator.standard_exponential(out=row)
    np.maximum(numbers, _LEAST, out=numbers)
    if q.device.type != "cpu":
        return _on_device(blocks, numbers, k, opened, per_round)
    masses = _masses(blocks)
    with np.errstate(divide="ignore", invalid="ignore"):
        block_times = numbers[:, :, :count] / masses[:, None]
        starts, chosen = _smallest(block_times.reshape(-1, count), opened)
        # One line per round, the rounds of one row together.
        probs = blocks.numpy()[np.arange(len(q)).repeat(rounds)[:, None], chosen]
        times = numbers[:, :, count:].reshape(probs.shape) / probs
        times += (starts - times.min(axis=2, initial=np.inf))[:, :, None]
    # NaN becomes infinity: a block or row without probability is never drawn.
    np.fmin(times, np.inf, out=times)
    drawn, indices = _smallest(times.reshape(len(times), opened * width), per_round)
    line, (block, token) = np.arange(len(times))[:, None], np.divmod(indices, width)
    found = drawn < np.inf
    picks = np.where(found, chosen[line, block] * width + token, -1)
    picked = np.where(found, probs[line, block, token], np.float32(0))
    return picks.reshape(len(q), k), picked.reshape(len(q), k)


def _on_device(
    blocks: torch.Tensor, numbers: NDArray[np.float64], k: int, opened: int, per_round: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The draws of :func:`gumbel_top_k_blocks` in tensors, with one wait. HAND-OVER.

    Args:
        blocks: ``[m, count, width]``, of q.
        numbers: Exp(1) ``[m, rounds, count + opened * width]``.
        k: draws from each row.
        opened: blocks whose tokens get times.
        per_round: draws of a round.
    """
    (m, count, width), rounds = blocks.shape, numbers.shape[1]
    [bits] = uploaded([numbers.view(np.int64)], blocks.device)
    given = bits.view(torch.float64)
    masses = blocks.sum(2, dtype=torch.float64)
    block_times = (given[:, :, :count] / masses[:, None]).view(m * rounds, count)
    starts, chosen = _possible(block_times).topk(opened, dim=1, largest=False)
    row = torch.arange(m, device=blocks.device).repeat_interleave(rounds)
    probs = blocks[row[:, None], chosen]
    times = given[:, :, count:].reshape(probs.shape) / probs
    times += (starts - _possible(times).amin(dim=2))[:, :, None]
    drawn, indices = _possible(times).flatten(1).topk(per_round, dim=1, largest=False)
    picks = chosen.gather(1, indices // width) * width + indices % width
    picked = probs.flatten(1).gather(1, indices)
    none = drawn == torch.inf
    found = downloaded([picks.masked_fill_(none, -1), picked.masked_fill_(none, 0)])
    return found[0].reshape(m, k), found[1].reshape(m, k)


def _possible(times: torch.Tensor) -> torch.Tensor:
    """Times with infinity for those that are not numbers: nothing is drawn there."""
    return times.nan_to_num_(nan=torch.inf, posinf=torch.inf)


def _masses(blocks: torch.Tensor) -> NDArray[np.float64]:
    """Sums ``[m, n]`` of blocks ``[m, n, width]`` on a CPU."""
    # A few rows at a time: in float64 all rows would not fit the CPU cache.
    sums = [rows.sum(2, dtype=torch.float64) for rows in torch.split(blocks, 4)]
    found: NDArray[np.float64] = (torch.cat(sums) if len(sums) > 1 else sums[0]).numpy()
    return found


def _smallest(times: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The ``k`` smallest of each row in order, and their indices; ``times`` is overwritten."""
    rows = np.arange(len(times))
    values, indices = np.empty((len(times), k)), np.empty((len(times), k), dtype=np.int64)
    for i in range(k):
        indices[:, i] = best = times.argmin(axis=1)
        values[:, i] = times[rows, best]
        times[rows, best] = np.inf
    return values, indices
