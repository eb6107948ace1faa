"""What steps foretold of their candidates, and what came: sums, and what they teach an oracle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.policies.auto.features import CELLS, OTHER, Codes, Voice, cell, cells
from draftwood.protocols import Outcome
from draftwood.protocols.bids import Bid, Chances
from draftwood.tree import ROOT
from runs.auto_search.ahead import Ahead
from runs.auto_search.choosing import ranks, taken

_GROUPS = 16
"""Of paths of like chances, each with a frequency of its own."""

_APART = 1e-9
"""Keeps paths apart whose chances have become the same."""

RANKS = ((1, 4), (5, 8), (9, 16), (17, 32), (33, 64))
"""Bands of the likeliest candidates of a step."""

DEPTHS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 64))
"""Bands of the depths of candidates."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a step foretold, and what came.

    Attributes:
        codes: int64 ``[n, 3]``, of what was offered below committed tokens.
        chances: ``[n]``, of each of these, if its parent was taken.
        taken: ``[n]``.
        depths: int64 ``[n]``, of their nodes.
        paths: ``[m]``, path chances of the candidates that might be drafted, likeliest first.
        right: ``[m]``, which of these paths the target takes, drafted or not.
    """

    codes: NDArray[np.int64]
    chances: NDArray[np.float64]
    taken: NDArray[np.bool_]
    depths: NDArray[np.int64]
    paths: NDArray[np.float64]
    right: NDArray[np.bool_]


class Rates:
    """How often candidates of each cell were taken, from judgements.

    Args:
        judgements: of steps.
    """

    def __init__(self, judgements: Sequence[Judgement]) -> None:
        self._counts = np.zeros((2, CELLS))
        for one in judgements:
            places = cells(one.codes)
            np.add.at(self._counts[0], places, 1.0)
            np.add.at(self._counts[1], places, one.taken)

    def chance(self, codes: Codes, otherwise: float) -> float:
        """Of a candidate; of cells seldom or never seen, nearer to ``otherwise``."""
        offered, hits = self._counts[:, cell(codes)].tolist()
        return float((hits + otherwise) / (offered + 1.0))


def judgement(bid: Bid, outcome: Outcome, chances: Chances, ahead: Ahead) -> Judgement:
    """Of a step's candidates, by the chances that were foretold and by what comes."""
    judged = bid.pool.judged(outcome.committed)
    path = taken(bid, ahead)
    # The last of these nodes was reached, but nothing was committed below it or nothing offered.
    reached = [ROOT, *path][: len(outcome.committed)]
    below = np.bincount(bid.pool.builder.parents[1:], minlength=len(bid.pool))[reached]
    depths = np.repeat(np.arange(1, len(reached) + 1), below)
    places = np.array(ranks(bid, path), dtype=np.int64)
    right = np.zeros(len(bid.values), dtype=np.bool_)
    right[places[places <= len(right)] - 1] = True
    foretold = np.array([chances.chance(codes) for codes in judged.said])
    return Judgement(judged.codes, foretold, judged.taken, depths, np.array(bid.values), right)


class Righted:
    """Path chances put right by how often paths of such chances were taken, never falling.

    Args:
        judgements: of steps, at least one of which had candidates.
    """

    def __init__(self, judgements: Sequence[Judgement]) -> None:
        chances = np.concatenate([one.paths for one in judgements])
        hits = np.concatenate([one.right for one in judgements])
        order = chances.argsort(kind="stable")
        groups = np.array_split(order, min(_GROUPS, len(order)))
        self._foretold = [0.0, *(float(chances[group].mean()) for group in groups), 1.0]
        self._taken = [0.0, *rising([float(hits[group].mean()) for group in groups]), 1.0]

    def __call__(self, paths: NDArray[np.float64]) -> NDArray[np.float64]:
        """In the order in which they were."""
        found = np.interp(paths, self._foretold, self._taken)
        return np.asarray(np.minimum(found + _APART * paths, 1.0), dtype=np.float64)


def rising(values: Sequence[float]) -> list[float]:
    """The never falling values that are nearest to the given ones: those that fall are averaged."""
    kept: list[tuple[float, int]] = []
    for value in values:
        kept.append((value, 1))
        while len(kept) > 1 and kept[-2][0] > kept[-1][0]:
            (high, some), (low, more) = kept[-2:]
            count = some + more
            kept[-2:] = [((high * some + low * more) / count, count)]
    return [value for value, count in kept for _ in range(count)]


def by_voice(judgements: Sequence[Judgement]) -> dict[str, tuple[int, float, int]]:
    """Candidates, the sum of their chances and how many were taken: all, and by who offers."""
    if not judgements:
        return {}
    codes = np.concatenate([one.codes for one in judgements])
    chances = np.concatenate([one.chances for one in judgements])
    hits = np.concatenate([one.taken for one in judgements])
    masks = {"all": np.ones(len(codes), dtype=np.bool_)}
    masks |= {voice.name.lower(): codes[:, voice] > OTHER for voice in Voice}
    return _sums(chances, hits, masks)


def by_rank(judgements: Sequence[Judgement]) -> dict[str, tuple[int, float, int]]:
    """The same of paths, by how likely they are among those of their step."""
    if not judgements:
        return {}
    places = np.concatenate([np.arange(1, len(one.paths) + 1) for one in judgements])
    chances = np.concatenate([one.paths for one in judgements])
    hits = np.concatenate([one.right for one in judgements])
    masks = {f"{a}-{b}": (a <= places) & (places <= b) for a, b in RANKS}
    return _sums(chances, hits, masks)


def by_depth(judgements: Sequence[Judgement]) -> dict[str, tuple[int, float, int]]:
    """The same of candidates, by the depth at which they were offered."""
    if not judgements:
        return {}
    depths = np.concatenate([one.depths for one in judgements])
    chances = np.concatenate([one.chances for one in judgements])
    hits = np.concatenate([one.taken for one in judgements])
    masks = {f"{a}-{b}": (a <= depths) & (depths <= b) for a, b in DEPTHS}
    return _sums(chances, hits, masks)


def _sums(
    chances: NDArray[np.float64], hits: NDArray[np.bool_], masks: Mapping[str, NDArray[np.bool_]]
) -> dict[str, tuple[int, float, int]]:
    return {
        name: (int(mask.sum()), float(chances[mask].sum()), int(hits[mask].sum()))
        for name, mask in masks.items()
        if mask.any()
    }
