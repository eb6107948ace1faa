"""Draws tokens from rows of q, with and without replacement.

A draw is a race: every token gets a clock that rings after a time E / q, E ~ Exp(1), so that the
first to ring is a draw from q, and the first k, in the order in which they ring, are k draws
without replacement. This is the Gumbel top-k trick (Kool, van Hoof and Welling, *Stochastic Beams
and Where to Find Them*, 2019) with exp(-x) of all its keys. Independent draws are won in races of
their own. As for the target's draws (:mod:`draftwood.sampling.noise`), a rounding error in q
matters only where two clocks nearly tie.

Most clocks cannot win, and over a large vocabulary (:func:`gumbel_top_k_blocks`) only those are
made that may. Tokens stand in blocks. The first ring of a block comes after E / (sum of its q), and
this is drawn first, one number a block. Only the k blocks that ring first can hold one of the first
k tokens: each of these has a ring of its own that is earlier than all of another block. So only
their tokens get clocks, each block's of which are then put forward or back by one and the same
time, so that the first of them rings when its block was said to.

That leaves the law of all clocks what it was. Of independent exponential clocks, which one rings
first and by how much later the others ring are independent of when it rings, since they have no
memory. The time of a block's first ring may then be replaced by another number with the same law,
Exp(sum of q), that is independent of everything else.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.tree import Draw

WHOLE = 4096
"""Vocabularies up to this size are raced as a whole: drawing the clocks costs less than choosing
those to draw. Which way is taken may depend on nothing that varies from step to step."""

WIDTH = 64
"""Tokens in a block."""

# Float64 for two reasons. A float32 exponential comes in steps of about 1e-7, and is zero once in
# some 1e7: no clock for a token less likely than that. And where q is tiny, as at low temperatures,
# E / q would be infinite, and the next best token would not be drawn as q says.
_LEAST = np.finfo(np.float64).tiny


class GumbelTopK(Protocol):
    """A way to draw; all of them have the same law, but draw different tokens."""

    def __call__(
        self, q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator], /
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The first ``k`` of a race in each row, or the winners of ``k`` races.

        A row's draws depend on that row and its generator, and fewer of them are the front of more.

        Args:
            q: float32 ``[m, V]``, in proportion to which tokens are drawn; a row of NaN draws
                nothing.
            k: draws of each row.
            draw: ``IID`` for the winners of ``k`` races, else the first ``k`` of one.
            generators: of each row, fresh.

        Returns:
            int64 ``[m, k]``, -1 where no token of positive probability is left, and their q.
        """
        ...


def gumbel_top_k(
    q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """See :class:`GumbelTopK`; the faster way for the size of the vocabulary."""
    return (gumbel_top_k_whole if q.shape[1] <= WHOLE else gumbel_top_k_blocks)(
        q, k, draw, generators
    )


def gumbel_top_k_whole(
    q: torch.Tensor, k: int, draw: Draw, generators: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """See :class:`GumbelTopK`; every token has a clock."""
    # HAND-OVER: the clocks come from the host.
    shares = q.cpu().numpy()
    rows = np.arange(len(shares))
    picks = np.empty((len(shares), k), dtype=np.int64)
    # How fast the clocks run, not when they ring: where q is zero, this is a number.
    speeds = np.empty(shares.shape, dtype=np.float64)
    for place in range(k):
        if place == 0 or draw is Draw.IID:
            for row, generator in zip(speeds, generators, strict=True):
                generator.standard_exponential(out=row)
            np.maximum(speeds, _LEAST, out=speeds)
            np.divide(shares, speeds, out=speeds)
        best = speeds.argmax(axis=1)
        picks[:, place] = np.where(speeds[rows, best] > 0, best, -1)
        speeds[rows, best] = 0
    chances = np.take_along_axis(shares, np.maximum(picks, 0), axis=1)
    return picks, np.where(picks < 0, np.float32(0), chances)


def gumbel_top_k_blocks(
    q: torch.Tensor,
    k: int,
    draw: Draw,
    generators: Sequence[np.random.Generator],
    width: int = WIDTH,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """See :class:`GumbelTopK`; clocks come in blocks of ``width`` tokens, the early ones first."""
    races, wins = (k, min(k, 1)) if draw is Draw.IID else (1, k)
    if q.shape[1] % width:
        q = torch.nn.functional.pad(q, (0, -q.shape[1] % width))
    blocks = q.view(len(q), -1, width)
    count = blocks.shape[1]
    opened = min(wins, count)
    clocks = np.empty((len(q), races, count + opened * width), dtype=np.float64)
    for row, generator in zip(clocks, generators, strict=True):
        generator.standard_exponential(out=row)
    np.maximum(clocks, _LEAST, out=clocks)
    masses = _masses(blocks)
    with np.errstate(divide="ignore", invalid="ignore"):
        rings = clocks[:, :, :count] / masses[:, None]
        starts, chosen = _earliest(rings.reshape(-1, count), opened)
        # One line for each race, the races of one row together.
        shares = _shares(blocks, np.arange(len(q)).repeat(races)[:, None], chosen)
        times = clocks[:, :, count:].reshape(shares.shape) / shares
        times += (starts - times.min(axis=2, initial=np.inf))[:, :, None]
    # In a block or a row where nothing is left nothing rings.
    np.fmin(times, np.inf, out=times)
    rung, places = _earliest(times.reshape(len(times), opened * width), wins)
    line, (block, place) = np.arange(len(times))[:, None], np.divmod(places, width)
    found = rung < np.inf
    picks = np.where(found, chosen[line, block] * width + place, -1)
    chances = np.where(found, shares[line, block, place], np.float32(0))
    return picks.reshape(len(q), k), chances.reshape(len(q), k)


def _masses(blocks: torch.Tensor) -> NDArray[np.float64]:
    """Sums of blocks ``[m, n, width]``."""
    # A few rows at a time: in float64 all of them would not stay in the cache.
    sums = [rows.sum(2, dtype=torch.float64) for rows in torch.split(blocks, 4)]
    # HAND-OVER: the clocks come from the host.
    found: NDArray[np.float64] = (torch.cat(sums) if len(sums) > 1 else sums[0]).cpu().numpy()
    return found


def _shares(
    blocks: torch.Tensor, row: NDArray[np.int64], block: NDArray[np.int64]
) -> NDArray[np.float32]:
    """q of the tokens that may win."""
    if blocks.device.type == "cpu":
        found: NDArray[np.float32] = blocks.numpy()[row, block]
    else:
        found = blocks[torch.from_numpy(row), torch.from_numpy(block)].cpu().numpy()  # HAND-OVER
    return found


def _earliest(times: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The ``k`` smallest of each row in order, and where they stand; ``times`` is overwritten."""
    rows = np.arange(len(times))
    first, places = np.empty((len(times), k)), np.empty((len(times), k), dtype=np.int64)
    for i in range(k):
        places[:, i] = best = times.argmin(axis=1)
        first[:, i] = times[rows, best]
        times[rows, best] = np.inf
    return first, places
