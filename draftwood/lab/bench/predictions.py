"""Counts of predicted and observed acceptance, by source and by predicted probability.

Counted from steps, outside the clock. A candidate counts if its step has shown whether it was
right, drafted or not, so that a policy's choice of nodes does not bias the counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.files import Count

if TYPE_CHECKING:
    from draftwood.engine.stats import StepStats

BINS = 10
"""Number of bins, of equal width from 0 to 1.

A probability on a border is in the upper bin; 1 is in the last one.
"""
EARLY = 200
"""Steps of the beginning: in so many the counts of ``auto`` lose half of their prior weight."""


@dataclass(frozen=True)
class Bin:
    """Candidates whose predicted probability is in one bin.

    Attributes:
        candidates: their number.
        predicted: the sum of their probabilities.
        accepted: how many of them the target accepted.
    """

    candidates: Count = 0
    predicted: float = 0.0
    accepted: Count = 0

    def __add__(self, other: "Bin") -> "Bin":
        return Bin(
            self.candidates + other.candidates,
            self.predicted + other.predicted,
            self.accepted + other.accepted,
        )


@dataclass(frozen=True)
class PredictionCounts:
    """Predicted steps and their outcome.

    Attributes:
        steps: number of steps with a prediction.
        predicted: tokens that they were predicted to commit.
        committed: tokens that they committed, before any cut.
        by_source: :data:`BINS` bins for the candidates that a source was the first to offer.
    """

    steps: int = 0
    predicted: float = 0.0
    committed: int = 0
    by_source: Mapping[str, tuple[Bin, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Counts of all steps, and of those before which the tuner had seen ``EARLY`` others."""

    all_steps: PredictionCounts = field(default_factory=PredictionCounts)
    late_steps: PredictionCounts = field(default_factory=PredictionCounts)


def predictions_of(steps: Iterable["StepStats"]) -> Predictions:
    """The counts of some steps."""
    every = list(steps)
    late = [s for s in every if s.prediction is not None and s.prediction.step > EARLY]
    return Predictions(_counts(every), _counts(late))


def merged(parts: Iterable[Predictions]) -> Predictions:
    """The counts of all parts together."""
    every = list(parts)
    return Predictions(
        _sum(part.all_steps for part in every), _sum(part.late_steps for part in every)
    )


def _counts(steps: Iterable["StepStats"]) -> PredictionCounts:
    known = [(s.prediction, len(s.path) + 1) for s in steps if s.prediction is not None]
    if not known:
        return PredictionCounts()
    labelled = [prediction.candidates for prediction, _ in known]
    sources = np.array([name for each in labelled for name in each.sources], dtype=np.str_)
    predicted = np.array([p for each in labelled for p in each.probabilities], dtype=np.float64)
    accepted = np.array([hit for each in labelled for hit in each.taken], dtype=np.bool_)
    return PredictionCounts(
        steps=len(known),
        predicted=fsum(prediction.tokens for prediction, _ in known),
        committed=sum(committed for _, committed in known),
        by_source={
            str(name): _binned(predicted[sources == name], accepted[sources == name])
            for name in np.unique(sources)
        },
    )


def _binned(predicted: NDArray[np.float64], accepted: NDArray[np.bool_]) -> tuple[Bin, ...]:
    places = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    columns = (np.bincount(places, weights, BINS) for weights in (None, predicted, accepted))
    return tuple(
        Bin(int(n), float(total), int(hits)) for n, total, hits in zip(*columns, strict=True)
    )


def _sum(parts: Iterable[PredictionCounts]) -> PredictionCounts:
    every = list(parts)
    bins: dict[str, tuple[Bin, ...]] = defaultdict(lambda: (Bin(),) * BINS)
    for part in every:
        for source, found in part.by_source.items():
            bins[source] = tuple(a + b for a, b in zip(bins[source], found, strict=True))
    return PredictionCounts(
        steps=sum(part.steps for part in every),
        predicted=fsum(part.predicted for part in every),
        committed=sum(part.committed for part in every),
        by_source=dict(sorted(bins.items())),
    )
