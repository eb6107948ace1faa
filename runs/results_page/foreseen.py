"""One method against the best of some others, chosen for each group on the other groups.

A rival that is picked after all is measured is partly the luckiest; here, what makes it the rival
of a group is not what it is held against there. The price is that a choice by few groups may miss
the best. Groups are those of :mod:`results_page.prompts`. Knows nothing of runs and pages.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from results_page.prompts import Key, over_seeds, ratios

Speeds: TypeAlias = Mapping[str, Mapping[Key, float]]
"""Tokens a second by method, then by group and seed."""


def foreseen(methods: Speeds, group: int) -> dict[Key, float]:
    """Speeds in a group of the method with the highest median over the other groups.

    Only methods that were measured both in it and outside it count; empty if there are none.
    """
    found = []
    for name, by_key in methods.items():
        here = {of: speed for of, speed in by_key.items() if of[0] == group}
        elsewhere = {of: speed for of, speed in by_key.items() if of[0] != group}
        if here and elsewhere:
            found.append((median(over_seeds(elsewhere)), name, here))
    return max(found, default=(0.0, "", {}))[2]


def over_foreseen(own: Speeds, others: Speeds) -> list[float]:
    """One ratio a group; both sides are chosen on the other groups. Empty if it came to one."""
    groups = sorted({group for by_key in own.values() for group, _ in by_key})
    found = [
        ratio for group in groups for ratio in ratios(foreseen(own, group), foreseen(others, group))
    ]
    return found if len(found) > 1 else []


def mean_of_medians(*sets: Sequence[float] | NDArray[np.float64], axis: int = -1) -> Any:
    """The mean over sets of their medians, which are taken along the axis."""
    return np.mean([np.median(each, axis=axis) for each in sets], axis=0)


def interval(sets: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % of the mean of the sets' medians: a percentile bootstrap over groups within sets.

    The rivals stay as chosen: a group that is drawn twice must not choose its own. Every set needs
    two groups.
    """
    chance = np.random.default_rng(0)
    found = bootstrap(sets, mean_of_medians, method="percentile", random_state=chance)
    low, high = found.confidence_interval
    return float(low), float(high)
