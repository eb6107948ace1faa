"""From rows to metrics: pooled ratios, medians over prompts and their uncertainty.

Pure. Speeds are taken per *group*, the prompts decoded together (one prompt unless the run is
batched): its tokens over its wall-clock seconds, prefill included, the median over repeats. The
intervals are percentile bootstraps over groups, 95 %. Counts and ratios are pooled over all rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from statistics import median

import numpy as np
from numpy.typing import NDArray

from draftwood.bench.rows import Row, phases
from draftwood.stats import Tally
from draftwood.theory.cost import speedup, speedup_with_verification

RESAMPLES = 2000
NAN = float("nan")


@dataclass(frozen=True)
class Interval:
    """A median and its 95 % bootstrap interval (NaN where there is too little to tell)."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Metrics:
    """What some rows of one method come to; ``docs/bench.md`` defines every field."""

    prompts: int
    tokens: int
    tokens_per_second: Interval
    speedup_vs_ar: Interval
    ttft_ms: float
    tpot_ms: float
    mean_acceptance_length: float
    acceptance_rate: float
    draft_efficiency: float
    draft_calls: int
    predicted_speedup: float
    predicted_speedup_with_verification: float
    target_calls: int
    identical: int
    compared: int
    looping_prompts: int
    p_s: float
    p_t: float
    routes: Mapping[str, int]
    kinds: Mapping[str, int]
    phases: Mapping[str, float]
    overhead_percent: float
    overhead_ms_per_step: float


def interval(values: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """The median of ``values`` with its percentile bootstrap interval.

    Resampling is seeded, so that equal values give equal intervals. One value has no interval.
    """
    if not values:
        return Interval(NAN, NAN, NAN)
    if len(values) == 1:
        return Interval(values[0], NAN, NAN)
    given: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    chosen = np.random.default_rng(0).integers(len(given), size=(resamples, len(given)))
    low, high = np.percentile(np.median(given[chosen], axis=1), [2.5, 97.5])
    return Interval(float(np.median(given)), float(low), float(high))


def speeds(rows: Iterable[Row]) -> dict[int, float]:
    """Tokens per second of each group: of each repeat, then the median over repeats."""
    tokens: dict[tuple[int, int], int] = defaultdict(int)
    seconds: dict[tuple[int, int], float] = {}
    for row in rows:
        key = (row.group, row.repeat)
        tokens[key] += row.tokens
        # A prompt with fewer turns has left the group when it ends: the longest stay is the group's
        seconds[key] = max(seconds.get(key, 0.0), row.group_seconds)
    by_group: dict[int, list[float]] = defaultdict(list)
    for key, total in seconds.items():
        by_group[key[0]].append(tokens[key] / total)
    return {group: median(found) for group, found in by_group.items()}


def aggregate(rows: Sequence[Row], reference: Sequence[Row]) -> Metrics:
    """Metrics of a method's rows; speed-ups are paired with the reference's rows by group."""
    tally = Tally()
    for row in rows:
        tally.merge(row.tally)
    fast, plain = speeds(rows), speeds(reference)
    compared = _by_prompt(rows, lambda row: row.identical)
    spent = phases(*rows)
    total = sum(spent.values())
    predicted = _predicted(tally, reference)
    return Metrics(
        prompts=len({row.id for row in rows}),
        tokens=sum(row.tokens for row in rows),
        tokens_per_second=interval(list(fast.values())),
        speedup_vs_ar=interval([fast[g] / plain[g] for g in fast if g in plain]),
        ttft_ms=_median(row.ttft * 1e3 for row in rows),
        tpot_ms=_median(row.tpot * 1e3 for row in rows),
        mean_acceptance_length=tally.mean_acceptance_length,
        acceptance_rate=tally.acceptance_rate,
        draft_efficiency=tally.draft_efficiency,
        draft_calls=tally.draft_calls,
        predicted_speedup=predicted[0],
        predicted_speedup_with_verification=predicted[1],
        target_calls=tally.steps,
        identical=sum(all(found) for found in compared.values()),
        compared=len(compared),
        looping_prompts=len({row.id for row in rows if row.looping}),
        p_s=tally.acceptance_of("context"),
        p_t=tally.acceptance_of("adjacency"),
        routes=dict(tally.routes),
        kinds=dict(tally.kinds),
        phases=spent,
        overhead_percent=100 * (1 - spent["target"] / total) if total else NAN,
        overhead_ms_per_step=_median(row.overhead * 1e3 for row in rows),
    )


def _predicted(tally: Tally, reference: Sequence[Row]) -> tuple[float, float]:
    """TALON's Eq. 7 without and with the cost of verifying, from this run's own phases.

    All drafting counts as the draft forwards' cost, so that drafters without a model, whose
    efficiency is 0, are predicted as if they drafted for nothing.
    """
    plain = Tally()
    for row in reference:
        plain.merge(row.tally)
    if not (tally.steps and plain.steps and plain.seconds["target"] and tally.seconds["target"]):
        return NAN, NAN
    alone = plain.seconds["target"] / plain.steps
    verification = tally.seconds["target"] / tally.steps / alone
    cost = tally.seconds["draft"] / tally.draft_calls / alone if tally.draft_calls else 0.0
    tau, delta = tally.mean_acceptance_length, tally.draft_efficiency
    return speedup(tau, cost, delta), speedup_with_verification(tau, verification, cost, delta)


def without_looping(rows: Sequence[Row]) -> list[Row]:
    """The rows of groups in which no answer loops, in any repeat."""
    wrong = {row.group for row in rows if row.looping}
    return [row for row in rows if row.group not in wrong]


def report(rows: Sequence[Row], reference: Sequence[Row]) -> dict[str, object]:
    """Metrics of all rows, of each set, and of both again without looping answers."""
    sets = dict.fromkeys(row.set for row in rows)
    by_set = {
        name: _with_and_without([row for row in rows if row.set == name], reference)
        for name in sets
    }
    return {**_with_and_without(rows, reference), "by_set": by_set}


def _with_and_without(rows: Sequence[Row], reference: Sequence[Row]) -> dict[str, object]:
    kept = without_looping(rows)
    return {
        **asdict(aggregate(rows, reference)),
        "without_looping": asdict(aggregate(kept, reference)),
    }


def _by_prompt(rows: Sequence[Row], value: Callable[[Row], bool | None]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        known = value(row)
        if known is not None:
            found[row.id].append(known)
    return found


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return median(known) if known else NAN
