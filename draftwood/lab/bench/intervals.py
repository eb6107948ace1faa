"""95 % intervals of benchmark figures: percentile bootstraps over groups (Efron 1979).

A *group* is the prompts that were decoded together. Groups are resampled whole, because their
prompts, repeats and seeds are not independent. Fewer than ``FEWEST`` groups have no interval.
Resampling is seeded: equal values have equal intervals. scipy is imported when an interval is asked
for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FEWEST = 6
"""Least groups of an interval. Of fewer, not even the smallest and the largest value enclose the
median in 95 % of all samples: n of them do in 1 - 2^(1 - n)."""

RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)
_MEMORY = 2**23
"""Most values of one batch of resamples."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Median:
    """A median over groups and its interval; None where there is too little data."""

    median: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def middle(self) -> float | None:
        """The figure itself, as :attr:`Ratio.middle`."""
        return self.median


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums over groups and its interval; None where there is too little data."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def middle(self) -> float | None:
        """The figure itself, as :attr:`Median.middle`."""
        return self.value


Estimate: TypeAlias = Median | Ratio
"""A figure with its 95 % interval."""


def ends(of: Estimate) -> tuple[float, float] | None:
    """The ends of an interval; None if it is unknown."""
    return None if of.low is None or of.high is None else (of.low, of.high)


def median_interval(values: Sequence[float], resamples: int = RESAMPLES) -> Median:
    """The median of ``values``, one per group, with its interval if there are enough of them."""
    given = np.asarray(values, dtype=np.float64)
    if len(values) < FEWEST:
        return Median(float(np.median(given)) if len(values) else None)
    low, high = np.percentile(_resampled(given, np.median, resamples), _PERCENTILES)
    return Median(float(np.median(given)), float(low), float(high))


def ratio_intervals(
    numerators: Floats, denominators: Floats, resamples: int = RESAMPLES
) -> list[Ratio]:
    """Ratios of sums over groups, one for each column, with their intervals.

    Resamples with a denominator of zero are left out. Fewer than ``FEWEST`` groups have no
    interval. The ratio of a column whose denominators are all zero is None.

    Args:
        numerators: ``[groups, ratios]``.
        denominators: the same shape.
        resamples: number of resamples.
    """
    both = np.stack([numerators, denominators])
    found = [Ratio(v if isfinite(v) else None) for v in _quotients(both.sum(axis=1)).tolist()]
    known = denominators.sum(axis=0) > 0
    if len(numerators) < FEWEST or not known.any():
        return found
    drawn = _quotients(_resampled(both[:, :, known].swapaxes(0, 1), np.sum, resamples))
    bounds = np.nanpercentile(drawn, _PERCENTILES, axis=-1)
    for i, low, high in zip(np.flatnonzero(known).tolist(), *bounds.tolist(), strict=True):
        found[i] = Ratio(found[i].value, low, high)
    return found


def _quotients(sums: Floats) -> Floats:
    """Numerators ``sums[0]`` over denominators ``sums[1]``; NaN where the latter are zero."""
    found: Floats = np.full_like(sums[0], np.nan)
    np.divide(sums[0], sums[1], out=found, where=sums[1] > 0)
    return found


def _resampled(groups: Floats, statistic: Callable[..., Floats], resamples: int) -> Floats:
    """The statistic over groups, the first axis, of each resample: ``[..., resamples]``."""
    from scipy.stats import bootstrap

    drawn: Floats = bootstrap(
        (groups,),
        statistic,
        axis=0,
        vectorized=True,
        n_resamples=resamples,
        batch=max(2, _MEMORY // groups.size),
        method="percentile",
        rng=0,
    ).bootstrap_distribution
    return drawn
