"""How far what was foretold can be trusted: the counts of rows as figures with their errors.

Pure. An error is relative: what was expected over what came, less one. Its interval is that of a
pooled ratio (:mod:`draftwood.lab.bench.intervals`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftwood.lab.bench.forecast import Bin, Forecast, Forecasts, SourceBins, merged
from draftwood.lab.bench.intervals import Ratio, ratio_intervals
from draftwood.lab.bench.rows import Row


@dataclass(frozen=True)
class SourceReliability:
    """Judged candidates of a source, how many were expected to be taken and were, and by tenths."""

    candidates: int
    expected: float
    taken: int
    error: Ratio
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Reliability:
    """Steps of which something was foretold: tokens expected and committed, and the candidates."""

    steps: int
    expected: float
    committed: int
    error: Ratio
    by_source: Mapping[str, SourceReliability]


@dataclass(frozen=True)
class Reliabilities:
    """Of all steps, and of the late ones alone; ``docs/bench.md`` defines every field."""

    all_steps: Reliability
    late_steps: Reliability


def reliability(rows: Sequence[Row]) -> Reliabilities | None:
    """Of a method's rows; None if nothing was foretold in any of them."""
    by_group: dict[int, list[Forecasts]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row.forecasts)
    groups = [merged(found) for found in by_group.values()]
    whole = merged(groups)
    if not whole.whole.steps:
        return None
    return Reliabilities(
        _reliability(whole.whole, [group.whole for group in groups]),
        _reliability(whole.late, [group.late for group in groups]),
    )


def _reliability(whole: Forecast, groups: Sequence[Forecast]) -> Reliability:
    names = [found.source for found in whole.by_source]
    pairs = []
    for group in groups:
        found = {each.source: each.whole for each in group.by_source}
        of_each = [found.get(name, Bin()) for name in names]
        pairs.append(
            [(group.expected, group.committed), *((each.expected, each.taken) for each in of_each)]
        )
    sums = np.array(pairs, dtype=np.float64)
    tokens, *of_sources = map(_error, ratio_intervals(sums[:, :, 0], sums[:, :, 1]))
    return Reliability(
        steps=whole.steps,
        expected=whole.expected,
        committed=whole.committed,
        error=tokens,
        by_source={
            found.source: _of_source(found, error)
            for found, error in zip(whole.by_source, of_sources, strict=True)
        },
    )


def _of_source(found: SourceBins, error: Ratio) -> SourceReliability:
    every = found.whole
    return SourceReliability(every.candidates, every.expected, every.taken, error, found.bins)


def _error(found: Ratio) -> Ratio:
    return replace(found, value=found.value - 1, low=found.low - 1, high=found.high - 1)
