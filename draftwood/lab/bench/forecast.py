"""What was foretold against what came of it: plain counts by source and by the chance foretold.

Counted from steps, outside the clock; counts of several answers add up with :func:`merged`. A
candidate counts if its step has shown whether it was right, drafted or not, so that what a policy
chooses to draft does not decide what is counted. Knows nothing of prompts and rates.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import fsum

import numpy as np
from numpy.typing import NDArray

from draftwood.engine.stats import StepStats

BINS = 10
"""Of equal width, from 0 to 1; a chance on the border of two is in the upper one, 1 in the last."""
EARLY = 200
"""Steps that make a beginning: in so many the counts of ``auto`` lose half of what they held."""


@dataclass(frozen=True)
class Bin:
    """Candidates whose chance was in one bin.

    Attributes:
        candidates: how many.
        expected: the sum of their chances.
        taken: how many the target took.
    """

    candidates: int = 0
    expected: float = 0.0
    taken: int = 0

    def __add__(self, other: "Bin") -> "Bin":
        return Bin(
            self.candidates + other.candidates,
            self.expected + other.expected,
            self.taken + other.taken,
        )


@dataclass(frozen=True)
class SourceBins:
    """The judged candidates that a source was the first to offer: a bin for each tenth."""

    source: str
    bins: tuple[Bin, ...]

    @property
    def whole(self) -> Bin:
        """All bins together."""
        return sum(self.bins, Bin())


@dataclass(frozen=True)
class Forecast:
    """What was foretold of some steps, and what came of it.

    Attributes:
        steps: of which something was foretold.
        expected: tokens that they were expected to commit.
        committed: tokens that they did commit, before any cut.
        by_source: of the candidates, sorted by source.
    """

    steps: int = 0
    expected: float = 0.0
    committed: int = 0
    by_source: tuple[SourceBins, ...] = ()


@dataclass(frozen=True)
class Forecasts:
    """Of all steps, and of those alone before which the tuner had seen ``EARLY`` others."""

    whole: Forecast = field(default_factory=Forecast)
    late: Forecast = field(default_factory=Forecast)


def forecasts_of(steps: Iterable[StepStats]) -> Forecasts:
    """The counts of some steps."""
    every = list(steps)
    late = [s for s in every if s.prediction is not None and s.prediction.step > EARLY]
    return Forecasts(_forecast(every), _forecast(late))


def merged(parts: Iterable[Forecasts]) -> Forecasts:
    """The counts of all parts together."""
    every = list(parts)
    return Forecasts(_sum(part.whole for part in every), _sum(part.late for part in every))


def _forecast(steps: Iterable[StepStats]) -> Forecast:
    predicted = [(s.prediction, len(s.path) + 1) for s in steps if s.prediction is not None]
    if not predicted:
        return Forecast()
    labelled = [prediction.candidates for prediction, _ in predicted]
    sources = np.array([name for each in labelled for name in each.sources], dtype=np.str_)
    chances = np.array([p for each in labelled for p in each.probabilities], dtype=np.float64)
    taken = np.array([hit for each in labelled for hit in each.taken], dtype=np.bool_)
    return Forecast(
        steps=len(predicted),
        expected=fsum(prediction.tokens for prediction, _ in predicted),
        committed=sum(committed for _, committed in predicted),
        by_source=tuple(
            SourceBins(str(name), _binned(chances[sources == name], taken[sources == name]))
            for name in np.unique(sources)
        ),
    )


def _binned(chances: NDArray[np.float64], taken: NDArray[np.bool_]) -> tuple[Bin, ...]:
    places = np.minimum((chances * BINS).astype(np.int64), BINS - 1)
    columns = (np.bincount(places, weights, BINS) for weights in (None, chances, taken))
    return tuple(
        Bin(int(n), float(total), int(hits)) for n, total, hits in zip(*columns, strict=True)
    )


def _sum(parts: Iterable[Forecast]) -> Forecast:
    every = list(parts)
    bins: dict[str, tuple[Bin, ...]] = defaultdict(lambda: (Bin(),) * BINS)
    for part in every:
        for found in part.by_source:
            pairs = zip(bins[found.source], found.bins, strict=True)
            bins[found.source] = tuple(mine + other for mine, other in pairs)
    return Forecast(
        steps=sum(part.steps for part in every),
        expected=fsum(part.expected for part in every),
        committed=sum(part.committed for part in every),
        by_source=tuple(SourceBins(name, bins[name]) for name in sorted(bins)),
    )
