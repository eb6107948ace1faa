"""Pearson's chi-square test of counts against a law.

Outcomes that are expected fewer than five times share a bin with others, the rarest first: the
statistic has the chi-square distribution only if no bin is nearly empty.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from draftwood.errors import DraftwoodError

K = TypeVar("K", bound=Hashable)

RARE = 5.0
"""Least expected count of a bin."""


@dataclass(frozen=True)
class ChiSquare:
    """Result of the test.

    Attributes:
        statistic: sum of (count - expected)^2 / expected over the bins.
        degrees: degrees of freedom, the number of bins less one.
        p_value: probability of a statistic at least as large if the counts follow the law.
    """

    statistic: float
    degrees: int
    p_value: float


def chi_square(counts: Mapping[K, int], law: Mapping[K, float]) -> ChiSquare:
    """Test counts against probabilities that add up to 1.

    An outcome that the law excludes refutes it: the p-value is then 0.

    Raises:
        DraftwoodError: there are too few counts for two bins.
    """
    total = sum(counts.values())
    bins: list[tuple[float, int]] = []
    expected, count = 0.0, 0
    for key in sorted(law, key=lambda outcome: law[outcome]):
        expected += law[key] * total
        count += counts.get(key, 0)
        if expected >= RARE:
            bins.append((expected, count))
            expected, count = 0.0, 0
    if bins and expected > 0:
        bins[-1] = (bins[-1][0] + expected, bins[-1][1] + count)
    if len(bins) < 2:
        raise DraftwoodError(
            f"{total} samples are too few for their outcomes to be counted: draw more"
        )
    degrees = len(bins) - 1
    if any(not law.get(key, 0.0) > 0 for key, times in counts.items() if times):
        return ChiSquare(math.inf, degrees, 0.0)
    statistic = sum((count - expected) ** 2 / expected for expected, count in bins)
    tail = torch.special.gammaincc(
        torch.tensor(degrees / 2, dtype=torch.float64),
        torch.tensor(statistic / 2, dtype=torch.float64),
    )
    return ChiSquare(statistic, degrees, float(tail))
