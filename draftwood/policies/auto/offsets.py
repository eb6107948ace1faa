"""What the codes of further sources add to a candidate's log odds.

The counts of :mod:`draftwood.policies.auto.calibration` are of the sources that every method has. A
further source shifts their estimate: each of its codes has two offsets, one for candidates that
another source lists too and one for all others. They are the weights of a logistic regression,
learnt online from the error of each prediction by Newton steps with a diagonal Hessian, so that
sources that say the same share what it is worth. No table grows with the number of sources.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np

from draftwood.policies.auto.features import (
    COPIED,
    NEURAL,
    NOT_ASKED,
    NOT_LISTED,
    SOURCES,
    TABLE,
    Codes,
    Source,
    copied_codes,
    ranked_codes,
)
from draftwood.protocols import Continuation, Feature

_TRUST = 0.5
"""Curvature that an offset begins with: that of two even chances."""

BOUND = 8.0
"""Largest offset."""

_BELIEF = 0.5
"""Share of the log odds of a like code that an offset begins with."""

Learnt: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""Offsets of one source and their curvatures: two for each of its codes."""


def place_of(codes: Codes, position: int) -> int:
    """Index of the offset of one source's code among the source's."""
    others = (*codes[:position], *codes[position + 1 :])
    return 2 * codes[position] + (max(others) > NOT_LISTED)


@dataclass(frozen=True)
class OffsetTable:
    """The offsets as of some time, frozen; a tuple for each further source.

    A candidate may have codes of the first ones only.
    """

    values: tuple[tuple[float, ...], ...]

    def shifted(self, codes: Codes, probability: float) -> float:
        """A probability from the counts alone, with what the further sources say."""
        total = 0.0
        for position, own in zip(range(len(SOURCES), len(codes)), self.values, strict=False):
            if codes[position] != NOT_ASKED:
                total += own[place_of(codes, position)]
        if not total or not 0.0 < probability < 1.0:
            return probability
        odds = math.log(probability / (1.0 - probability)) + total
        return 1.0 / (1.0 + math.exp(-odds))


class Offsets:
    """Offsets that learn.

    Args:
        begin: offsets and curvatures of each further source.
        half_life: steps after which what was learnt has lost half its weight.
    """

    def __init__(self, begin: Sequence[Learnt], half_life: float) -> None:
        self._values = [list(values) for values, _ in begin]
        self._curvatures = [list(curvatures) for _, curvatures in begin]
        self._decay = 2.0 ** (-1.0 / half_life)

    @property
    def table(self) -> OffsetTable:
        """A snapshot."""
        return OffsetTable(tuple(map(tuple, self._values)))

    def observe(self, codes: Codes, probability: float, taken: bool) -> None:
        """Learn from a candidate that was predicted with a probability."""
        error, curvature = taken - probability, probability * (1.0 - probability)
        for position, values in zip(range(len(SOURCES), len(codes)), self._values, strict=False):
            if codes[position] != NOT_ASKED:
                place = place_of(codes, position)
                known = self._curvatures[position - len(SOURCES)]
                known[place] += curvature
                moved = values[place] + error / (_TRUST + known[place])
                values[place] = min(max(moved, -BOUND), BOUND)

    def extend(self, learnt: Learnt) -> None:
        """Add a further source, with what it begins with."""
        values, curvatures = learnt
        self._values.append(list(values))
        self._curvatures.append(list(curvatures))

    def fade(self) -> None:
        """Let what was learnt lose weight by one step."""
        self._curvatures = [[self._decay * c for c in known] for known in self._curvatures]

    def learnt(self) -> list[Learnt]:
        """What the next process can begin with, for each source."""
        return [
            (tuple(values), tuple(known))
            for values, known in zip(self._values, self._curvatures, strict=True)
        ]


def begin(source: Source, odds: Callable[[int, int], float], common: float) -> Learnt:
    """Where a source begins that nothing is known of.

    Its candidate that no other source lists gains a share of what the most similar one of the
    sources that every method has would gain: one with the same length of match, or the same rank
    and score; for a neural drafter, the first one's with the same code. Anything else that it says
    means nothing yet.

    Args:
        source: the further source.
        odds: log odds of candidates with one code of the source at one position.
        common: log odds of all candidates.
    """
    values = [0.0] * (2 * source.codes)
    for code, (position, like) in _similar(source).items():
        gained = odds(position, like) - common
        values[2 * code] = _BELIEF * min(max(gained, -BOUND), BOUND)
    return values, [0.0] * len(values)


def _similar(source: Source) -> dict[int, tuple[int, int]]:
    """The code of :data:`SOURCES` that is most like each code of a source, with its position."""
    if source.neural:
        return {code: (NEURAL, code) for code in range(source.ranked_from, source.codes)}
    found = {}
    if source.evidence.copied:
        for code, least in enumerate(_combinations(source.evidence.copied), 2):
            place = 0 if least.get("first", 0) else 1
            length = int(least.get("match_length", 0))
            offer = Continuation((), length - place, count=1, agreeing=1)
            preferred = bool(least.get("preferred", 1))
            found[code] = COPIED, copied_codes(SOURCES[COPIED], offer, preferred=preferred)(place)
    if source.evidence.ranked:
        for code, least in enumerate(_combinations(source.evidence.ranked), source.ranked_from):
            rank, score = int(least.get("rank", 0)), least.get("score", 0.0)
            logq = np.full((1, rank + 1), math.log(score) if score > 0.0 else -math.inf)
            found[code] = TABLE, int(ranked_codes(logq.astype(np.float32))[0, rank])
    return found


def _combinations(features: Sequence[Feature]) -> Iterator[dict[str, float]]:
    """The least value of each feature in each combination of bins, in the order of the codes."""
    names = [feature.name for feature in features]
    for least in product(*((0.0, *feature.edges) for feature in features)):
        yield dict(zip(names, least, strict=True))
