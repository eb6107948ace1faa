"""From rows to metrics: pooled ratios, medians over groups, and their uncertainty.

Pure. A *group* is what was decoded together: one prompt, unless the run is batched. Speeds are
taken per group and seed: its tokens over its wall-clock seconds, prefill included, the median over
repeats. A group's value is the median over its seeds. Counts and ratios are pooled over all rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from statistics import median
from typing import TypeAlias

import numpy as np

from draftwood.engine.stats import Tally
from draftwood.lab.bench.acceptance import Acceptance, RankCount, merged
from draftwood.lab.bench.intervals import NAN, Median, Ratio, median_interval, ratio_intervals
from draftwood.lab.bench.rows import Row, phases
from draftwood.lab.loops import pooled


def speedup(tau: float, draft_cost: float, draft_efficiency: float) -> float:
    """Eq. 7: ``tau / (1 + c * delta)``; verifying a tree costs what one token costs.

    Args:
        tau: mean acceptance length, tokens per step.
        draft_cost: c, one draft forward over one target forward.
        draft_efficiency: delta, draft forwards per target forward.
    """
    return speedup_with_verification(tau, 1.0, draft_cost, draft_efficiency)


def speedup_with_verification(
    tau: float, verification: float, draft_cost: float, draft_efficiency: float
) -> float:
    """The same where a target forward over a tree costs ``verification`` = T(n) / T(1).

    ValueError for a cost or an efficiency below 0, or no verification at all.
    """
    if verification <= 0.0 or draft_cost < 0.0 or draft_efficiency < 0.0:
        raise ValueError(
            f"Costs are {verification} and {draft_cost} and draft efficiency is "
            f"{draft_efficiency}; give at least 0, and more than 0 for verification."
        )
    return tau / (verification + draft_cost * draft_efficiency)


Key: TypeAlias = tuple[int, int]
"""A group and the seed it was decoded with."""


@dataclass(frozen=True)
class Baselines:
    """What speeds are held against: the rows of plain decoding, by us and by transformers."""

    ar: Sequence[Row] = ()
    hf: Sequence[Row] = ()


@dataclass(frozen=True)
class DepthRate:
    """See :class:`draftwood.lab.bench.acceptance.DepthCount`."""

    depth: int
    offered: int
    reached: int
    rate: Ratio


@dataclass(frozen=True)
class SourceRate:
    """See :class:`draftwood.lab.bench.acceptance.SourceCount`."""

    drafted: int
    accepted: int
    rate: Ratio


@dataclass(frozen=True)
class Metrics:
    """What some rows of one method come to; ``docs/bench.md`` defines every field."""

    prompts: int
    tokens: int
    tokens_per_second: Median
    speedup_vs_ar: Median
    speedup_vs_hf: Median
    ttft_ms: Median
    tpot_ms: Median
    mean_acceptance_length: Ratio
    acceptance_rate: Ratio
    draft_calls: int
    draft_efficiency: Ratio
    predicted_speedup: float
    predicted_speedup_with_verification: float
    target_calls: int
    identical: int
    compared: int
    texts: int
    looping_texts: int
    repeated_8grams: Ratio
    acceptance_by_depth: tuple[DepthRate, ...]
    acceptance_by_source: Mapping[str, SourceRate]
    acceptance_by_rank: tuple[RankCount, ...]
    routes: Mapping[str, int]
    kinds: Mapping[str, int]
    phases: Mapping[str, float]
    time_share: Mapping[str, float]
    overhead_percent: float
    overhead_ms_per_step: Median
    peak_memory_mb: float


def aggregate(rows: Sequence[Row], baselines: Baselines) -> Metrics:
    """Metrics of a method's rows; speed-ups are paired by group and seed."""
    tally = _tally(rows)
    acceptance = merged(row.acceptance for row in rows)
    tau, rate, efficiency, repeated, *rates = _ratios(rows, acceptance)
    texts = _texts(rows)
    depths, sources = acceptance.by_depth, acceptance.by_source
    compared = _by_prompt(rows, lambda row: row.identical)
    spent = phases(*rows)
    total = sum(spent.values())
    predicted = _predicted(tally, baselines.ar)
    fast = speeds(rows)
    memory = [row.peak_memory_mb for row in rows if row.peak_memory_mb is not None]
    return Metrics(
        prompts=len({row.id for row in rows}),
        tokens=sum(row.tokens for row in rows),
        tokens_per_second=_over_groups(fast),
        speedup_vs_ar=_over_groups(_paired(fast, speeds(baselines.ar))),
        speedup_vs_hf=_over_groups(_paired(fast, speeds(baselines.hf))),
        ttft_ms=_milliseconds(rows, lambda row: row.ttft),
        tpot_ms=_milliseconds(rows, lambda row: row.tpot),
        mean_acceptance_length=tau,
        acceptance_rate=rate,
        draft_calls=tally.draft_calls,
        draft_efficiency=efficiency,
        predicted_speedup=predicted[0],
        predicted_speedup_with_verification=predicted[1],
        target_calls=tally.steps,
        identical=sum(all(found) for found in compared.values()),
        compared=len(compared),
        texts=len(texts),
        looping_texts=sum(texts.values()),
        repeated_8grams=repeated,
        acceptance_by_depth=tuple(
            DepthRate(count.depth, count.offered, count.reached, found)
            for count, found in zip(depths, rates[: len(depths)], strict=True)
        ),
        acceptance_by_source={
            count.source: SourceRate(count.drafted, count.accepted, found)
            for count, found in zip(sources, rates[len(depths) :], strict=True)
        },
        acceptance_by_rank=acceptance.by_rank,
        routes=dict(tally.routes),
        kinds=dict(tally.kinds),
        phases=spent,
        time_share={phase: seconds / total for phase, seconds in spent.items()} if total else {},
        overhead_percent=100 * (1 - spent["target"] / total) if total else NAN,
        overhead_ms_per_step=_milliseconds(rows, lambda row: row.overhead),
        peak_memory_mb=median(memory) if memory else NAN,
    )


def speeds(rows: Iterable[Row]) -> dict[Key, float]:
    """Tokens per second of each group and seed: of each repeat, then the median over repeats."""
    tokens: dict[tuple[Key, int], int] = defaultdict(int)
    seconds: dict[tuple[Key, int], float] = {}
    for row in rows:
        place = ((row.group, row.run_seed), row.repeat)
        tokens[place] += row.tokens
        # A prompt with fewer turns has left the group when it ends: the longest stay is the group's
        seconds[place] = max(seconds.get(place, 0.0), row.group_seconds)
    by_key: dict[Key, list[float]] = defaultdict(list)
    for place, total in seconds.items():
        by_key[place[0]].append(tokens[place] / total)
    return {key: median(found) for key, found in by_key.items()}


def without_looping(rows: Sequence[Row]) -> list[Row]:
    """The rows of groups and seeds in which no answer loops, in any repeat."""
    wrong = {(row.group, row.run_seed) for row in rows if row.looping}
    return [row for row in rows if (row.group, row.run_seed) not in wrong]


def report(rows: Sequence[Row], baselines: Baselines) -> dict[str, object]:
    """Metrics of all rows, of each set and task, and of each seed if there are several.

    Each of them again without looping answers.
    """

    def each(name: Callable[[Row], str]) -> dict[str, object]:
        chosen: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            chosen[name(row)].append(row)
        return {key: _with_and_without(found, baselines) for key, found in chosen.items()}

    whole = {
        **_with_and_without(rows, baselines),
        "by_set": each(lambda row: row.set),
        "by_task": each(lambda row: row.task),
    }
    if len({row.run_seed for row in rows}) > 1:
        whole["by_seed"] = each(lambda row: str(row.run_seed))
    return whole


def _with_and_without(rows: Sequence[Row], baselines: Baselines) -> dict[str, object]:
    kept = without_looping(rows)
    return {
        **asdict(aggregate(rows, baselines)),
        "without_looping": asdict(aggregate(kept, baselines)),
    }


def _predicted(tally: Tally, reference: Sequence[Row]) -> tuple[float, float]:
    """TALON's Eq. 7 without and with the cost of verifying, from this run's own phases.

    All drafting counts as the draft forwards' cost, so that drafters without a model, whose
    efficiency is 0, are predicted as if they drafted for nothing.
    """
    plain = _tally(reference)
    if not (tally.steps and plain.steps and plain.seconds["target"] and tally.seconds["target"]):
        return NAN, NAN
    alone = plain.seconds["target"] / plain.steps
    verification = tally.seconds["target"] / tally.steps / alone
    cost = tally.seconds["draft"] / tally.draft_calls / alone if tally.draft_calls else 0.0
    tau, delta = tally.mean_acceptance_length, tally.draft_efficiency
    return speedup(tau, cost, delta), speedup_with_verification(tau, verification, cost, delta)


def _ratios(rows: Sequence[Row], acceptance: Acceptance) -> list[Ratio]:
    """τ, acceptance rate, δ, repeated 8-grams, then the rates by depth and by source."""
    by_group: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    pairs: list[list[tuple[int, int]]] = []
    for members in by_group.values():
        tally, part = _tally(members), merged(row.acceptance for row in members)
        repeated = pooled(each for row in members for each in row.repeats)
        depths = {count.depth: (count.reached, count.offered) for count in part.by_depth}
        sources = {count.source: (count.accepted, count.drafted) for count in part.by_source}
        pairs.append(
            [
                (tally.committed, tally.steps),
                (tally.accepted, tally.drafted),
                (tally.draft_calls, tally.steps),
                (repeated.repeated, repeated.total),
                *(depths.get(count.depth, (0, 0)) for count in acceptance.by_depth),
                *(sources.get(count.source, (0, 0)) for count in acceptance.by_source),
            ]
        )
    ratios = 4 + len(acceptance.by_depth) + len(acceptance.by_source)
    sums = np.asarray(pairs, dtype=np.float64).reshape(len(pairs), ratios, 2)
    return ratio_intervals(sums[:, :, 0], sums[:, :, 1])


def _texts(rows: Iterable[Row]) -> dict[tuple[str, int, int], bool]:
    """Whether each answer loops, in any repeat: by prompt, seed and turn."""
    found: dict[tuple[str, int, int], bool] = defaultdict(bool)
    for row in rows:
        for turn, each in enumerate(row.repeats):
            found[row.id, row.run_seed, turn] |= each.loops
    return found


def _tally(rows: Iterable[Row]) -> Tally:
    whole = Tally()
    for row in rows:
        whole.merge(row.tally)
    return whole


def _paired(fast: Mapping[Key, float], plain: Mapping[Key, float]) -> dict[Key, float]:
    return {key: speed / plain[key] for key, speed in fast.items() if key in plain}


def _milliseconds(rows: Sequence[Row], seconds: Callable[[Row], float]) -> Median:
    """Of each group and seed the median over its rows, in milliseconds."""
    found: dict[Key, list[float]] = defaultdict(list)
    for row in rows:
        if not isnan(seconds(row)):
            found[row.group, row.run_seed].append(seconds(row) * 1e3)
    return _over_groups({key: median(values) for key, values in found.items()})


def _over_groups(values: Mapping[Key, float]) -> Median:
    """The median over seeds is a group's value; the median over groups is the figure."""
    by_group: dict[int, list[float]] = defaultdict(list)
    for (group, _), value in values.items():
        by_group[group].append(value)
    return median_interval([median(found) for found in by_group.values()])


def _by_prompt(rows: Sequence[Row], value: Callable[[Row], bool | None]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        known = value(row)
        if known is not None:
            found[row.id].append(known)
    return found
