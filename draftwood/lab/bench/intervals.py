"""How sure a figure is: percentile bootstraps over groups, 95 %.

Pure; knows nothing of rows. A *group*, the prompts decoded together, is what is drawn anew: its
repeats, seeds and prompts go with it, since they are not independent of one another. Resampling is
seeded, so that equal values give equal intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
NAN = float("nan")
_PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True)
class Median:
    """A median over groups and its interval (NaN where there is too little to tell)."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums over groups and its interval (NaN likewise)."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float], resamples: int = RESAMPLES) -> Median:
    """The median of ``values``, one a group, with its interval. One value has no interval."""
    if not values:
        return Median(NAN, NAN, NAN)
    if len(values) == 1:
        return Median(values[0], NAN, NAN)
    given: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    low, high = np.percentile(np.median(given[_drawn(len(given), resamples)], axis=1), _PERCENTILES)
    return Median(float(np.median(given)), float(low), float(high))


def ratio_intervals(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64], resamples: int = RESAMPLES
) -> list[Ratio]:
    """Sum over sum, of many ratios at once.

    Resamples whose denominator is zero are left out; one group has no interval, and a ratio whose
    denominators are all zero is NaN.

    Args:
        numerators: ``[groups, ratios]``.
        denominators: the same shape.
        resamples: how many times the groups are drawn.

    Returns:
        A ratio for each column.
    """
    top, bottom = numerators.sum(axis=0), denominators.sum(axis=0)
    values = [a / b if b else NAN for a, b in zip(top.tolist(), bottom.tolist(), strict=True)]
    groups = len(numerators)
    if groups < 2:
        return [Ratio(value, NAN, NAN) for value in values]
    # How often each group was drawn turns two thousand sums into one product of matrices.
    drawn = _drawn(groups, resamples) + groups * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=resamples * groups).reshape(resamples, groups)
    weights = counts.astype(np.float64)
    found: list[Ratio] = []
    for value, a, b in zip(
        values, (weights @ numerators).T, (weights @ denominators).T, strict=True
    ):
        known = b > 0
        if known.any():
            low, high = np.percentile(a[known] / b[known], _PERCENTILES)
            found.append(Ratio(value, float(low), float(high)))
        else:
            found.append(Ratio(value, NAN, NAN))
    return found


def _drawn(groups: int, resamples: int) -> NDArray[np.int64]:
    """int64 ``[resamples, groups]``: the groups of each resample."""
    return np.random.default_rng(0).integers(groups, size=(resamples, groups))
