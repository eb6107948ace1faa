"""Counts of sampled texts: against known probabilities, or two samples against each other.

Also how large a difference a test of so many samples finds.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from draftwood.errors import DraftwoodError, need
from draftwood.lab.lossless.chi_square import RARE, ChiSquare, chi_square

LEAST_P = 1e-3
"""A p-value below this is a failure. One of a thousand lossless servers fails, too."""

POWER = 0.8
"""Probability with which the stated difference is found."""

Key: TypeAlias = str | None
"""A text without its spaces, which servers put in different places; None: any other one."""


def key_of(text: str, *, whole: bool) -> Key:
    """The key of a continuation; ``whole``: it has all tokens that were asked for."""
    return text.replace(" ", "") if whole else None


def completed(distribution: Mapping[str, float]) -> dict[Key, float]:
    """Probabilities of keys, from those of some texts; None has the rest.

    Raises:
        DraftwoodError: they add up to more than 1, beyond rounding.
    """
    found: dict[Key, float] = {}
    for text, probability in distribution.items():
        # How a text that ends inside a character goes on is for the server to say.
        key = key_of(text, whole="\ufffd" not in text)
        found[key] = found.get(key, 0.0) + probability
    total = sum(distribution.values())
    if total > 1.01:
        raise DraftwoodError(f"probabilities add up to {total:.3f}: they are not those of samples")
    # Rounding leaves no outcome without a chance: a single other text must not refute all.
    found[None] = max(found.get(None, 0.0) + 1 - total, 1e-4)
    whole = sum(found.values())
    return {key: share / whole for key, share in found.items()}


def against_distribution(counts: Mapping[Key, int], distribution: Mapping[Key, float]) -> ChiSquare:
    """The chi-square test of counts against the probabilities of all keys.

    Raises:
        DraftwoodError: there are too few counts for two bins.
    """
    known: Counter[Key] = Counter()
    for key, times in counts.items():
        known[key if key in distribution else None] += times
    return chi_square(known, distribution)


def chance_of_one(counts: Mapping[Key, int], distribution: Mapping[Key, float]) -> float:
    """Probability that all samples are the one text that they are; 1 if they are several.

    A text that the distribution does not name has the probability of all such texts at most.
    """
    [key, *others] = counts
    if others:
        return 1.0
    return distribution.get(key, distribution[None]) ** counts[key]


def two_samples(first: Mapping[Key, int], second: Mapping[Key, int]) -> ChiSquare:
    """The chi-square test of whether two samples have one distribution.

    Raises:
        DraftwoodError: there are too few counts for two bins.
    """
    bins = _bins(first, second)
    if len(bins) < 2:
        total = sum(first.values()) + sum(second.values())
        raise DraftwoodError(f"{total} samples are too few for their outcomes to be counted")
    stats: Any = need("scipy.stats", "endpoint")
    found = stats.chi2_contingency([[a for a, _ in bins], [b for _, b in bins]], correction=False)
    return ChiSquare(float(found.statistic), int(found.dof), float(found.pvalue))


def _bins(first: Mapping[Key, int], second: Mapping[Key, int]) -> list[tuple[int, int]]:
    """Counts of both samples in bins that each is expected to fill, the rarest outcomes first."""
    totals = (sum(first.values()), sum(second.values()))
    least = RARE * sum(totals) / min(totals)
    both = Counter(first) + Counter(second)
    bins: list[tuple[int, int]] = []
    a = b = 0
    for key in sorted(both, key=lambda key: (both[key], key or "")):
        a, b = a + first.get(key, 0), b + second.get(key, 0)
        if a + b >= least:
            bins.append((a, b))
            a = b = 0
    if bins and a + b:
        bins[-1] = (bins[-1][0] + a, bins[-1][1] + b)
    return bins


@dataclass(frozen=True)
class Power:
    """What a test finds.

    Attributes:
        distance: total variation distance between the two distributions, over the test's bins,
            from which on it fails with probability :data:`POWER` at least.
    """

    distance: float

    def __str__(self) -> str:
        return (
            f"a total variation distance of {self.distance:.2g} or more is found with probability "
            f"{POWER:g}"
        )


def power(degrees: int, samples: Sequence[int]) -> Power:
    """The power of a test with so many degrees of freedom.

    A distance d gives the statistic a noncentrality of at least 4 n d^2, whatever outcomes the
    difference is spread over: of all differences of one distance, that between two halves of the
    probability moves the statistic least. The statistic is taken to have its limit's distribution.

    Args:
        degrees: of freedom.
        samples: their number; two numbers for two samples.
    """
    stats: Any = need("scipy.stats", "endpoint")
    optimize: Any = need("scipy.optimize", "endpoint")
    critical = float(stats.chi2.isf(LEAST_P, degrees))

    def excess(noncentrality: float) -> float:
        return float(stats.ncx2.sf(critical, degrees, noncentrality)) - POWER

    needed = float(optimize.brentq(excess, 1e-6, 10 * (critical + 100)))
    effective = samples[0] if len(samples) == 1 else math.prod(samples) / sum(samples)
    return Power(min(1.0, math.sqrt(needed / (4 * effective))))
