"""Draws for many rows of scores at once, on their device and without a wait."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.kernels.gpu import draw_for
from draftwood.sampling.philox import exponentials, signed

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


def exponentials_at(
    addresses: Sequence[Sequence[tuple[int, int]]], size: int, device: torch.device
) -> Iterator[torch.Tensor]:
    """The variates of :meth:`draftwood.sampling.noise.RequestNoise.exponentials` of requests.

    They are made for as many requests at once as :data:`MOST` allows: that takes 400 operations.

    Args:
        addresses: of each request's numbers, see :meth:`RequestNoise.address`.
        size: of the vocabulary.
        device: where they are made.

    Yields:
        float64 ``[len(addresses[i]), size]``.
    """
    for own in _groups([len(each) * size for each in addresses]):
        group = addresses[own]
        numbers = [(signed(seed), place) for each in group for seed, place in each]
        seeds, places = uploaded([*np.array(numbers, dtype=np.int64).T], device)
        made = exponentials(seeds, places, size)
        yield from made.split([*map(len, group)])  # type: ignore[no-untyped-call]


def _groups(sizes: Sequence[int]) -> Iterator[slice]:
    """Runs of neighbours with at most :data:`MOST` numbers together; one may have more."""
    begin = 0
    while begin < len(sizes):
        end, whole = begin + 1, sizes[begin]
        while end < len(sizes) and whole + sizes[end] <= MOST:
            whole += sizes[end]
            end += 1
        yield slice(begin, end)
        begin = end


def _noises(given: Sequence[ScoredRows]) -> Iterator[torch.Tensor]:
    """Logs of the exponentials, float64 ``[r, V]`` for each.

    They are made for as many at once as :data:`MOST` allows: that takes 400 operations.
    """
    for own in _groups([each.seeds.numel() * each.scores.shape[1] for each in given]):
        group, size = given[own], given[own.start].scores.shape[1]
        seeds = torch.cat([each.seeds for each in group])
        positions = torch.cat([each.positions for each in group])
        made = exponentials(seeds, positions, size).log_()
        for each in group:
            yield made[: len(each.seeds)]
            made = made[len(each.seeds) :]
