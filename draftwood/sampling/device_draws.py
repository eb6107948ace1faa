"""Draws for many rows of scores at once, on their device and without a wait."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from draftwood.kernels.gpu import draw_for
from draftwood.sampling.philox import exponentials

MOST = 1 << 24
"""Random numbers that tensor operations make at once, if one request needs no more; 128 MB, and
several times that on the way."""


class ScoredRows(NamedTuple):
    """Rows of scores, and the addresses of the random numbers with which their tokens are drawn.

    See :meth:`draftwood.sampling.noise.RequestNoise.address`.

    Attributes:
        scores: log-weights up to a constant of the row, ``[n, V]``.
        seeds: int64 ``[r]``.
        positions: int64 ``[r]``.
        levels: int64 ``[n]``, the address of each row among these.
    """

    scores: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    levels: torch.Tensor


def draw_rows(given: Sequence[ScoredRows]) -> list[torch.Tensor]:
    """The tokens that :meth:`RequestNoise.choose` would draw, int64 ``[n]`` for each.

    The token of a row without a finite maximum means nothing.
    """
    kernel = draw_for(given[0].scores) if given else None
    if kernel is not None:
        return [kernel(*each) for each in given]
    # The log of the keys of `choose`, but for the sum of the weights.
    return [
        (each.scores - noise.index_select(0, each.levels)).argmax(dim=-1)
        for each, noise in zip(given, _noises(given), strict=True)
    ]


def _noises(given: Sequence[ScoredRows]) -> Iterator[torch.Tensor]:
    """Logs of the exponentials, float64 ``[r, V]`` for each.

    They are made for as many at once as :data:`MOST` allows: that takes 400 operations.
    """
    begin = 0
    while begin < len(given):
        group, size = [given[begin]], given[begin].scores.shape[1]
        for each in given[begin + 1 :]:
            if sum(len(other.seeds) for other in (*group, each)) * size > MOST:
                break
            group.append(each)
        begin += len(group)
        seeds = torch.cat([each.seeds for each in group])
        positions = torch.cat([each.positions for each in group])
        made = exponentials(seeds, positions, size).log_()
        for each in group:
            yield made[: len(each.seeds)]
            made = made[len(each.seeds) :]
