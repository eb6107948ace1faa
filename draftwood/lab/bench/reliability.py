"""Reliability of predictions: the counts of rows as figures with the prediction's relative error.

An error is predicted over observed, less one. Its interval is that of a pooled ratio
(:mod:`draftwood.lab.bench.intervals`).
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from draftwood.lab.bench.figures import Reliabilities, Reliability, RunRow, SourceReliability
from draftwood.lab.bench.intervals import Ratio, ratio_intervals
from draftwood.lab.bench.predictions import Bin, PredictionCounts, Predictions, merged


def reliability(rows: Sequence[RunRow]) -> Reliabilities | None:
    """The figures of a method's rows; None if the method predicted nothing."""
    by_group: dict[int, list[Predictions]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row.forecasts)
    groups = [merged(found) for found in by_group.values()]
    whole = merged(groups)
    if not whole.all_steps.steps:
        return None
    return Reliabilities(
        _reliability(whole.all_steps, [group.all_steps for group in groups]),
        _reliability(whole.late_steps, [group.late_steps for group in groups]),
    )


def _reliability(whole: PredictionCounts, groups: Sequence[PredictionCounts]) -> Reliability:
    pairs = []
    for group in groups:
        of_each = [sum(group.by_source.get(name, ()), Bin()) for name in whole.by_source]
        pairs.append(
            [
                (group.predicted, group.committed),
                *((each.predicted, each.accepted) for each in of_each),
            ]
        )
    sums = np.array(pairs, dtype=np.float64)
    tokens, *of_sources = map(_error, ratio_intervals(sums[:, :, 0], sums[:, :, 1]))
    by_source = {}
    for (name, bins), error in zip(whole.by_source.items(), of_sources, strict=True):
        every = sum(bins, Bin())
        by_source[name] = SourceReliability(
            every.candidates, every.predicted, every.accepted, error, bins
        )
    return Reliability(whole.steps, whole.predicted, whole.committed, tokens, by_source)


def _error(found: Ratio) -> Ratio:
    value, low, high = (None if x is None else x - 1 for x in (found.value, found.low, found.high))
    return Ratio(value, low, high)
