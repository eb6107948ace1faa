"""From rows to metrics: pooled ratios, medians over groups, and their uncertainty.

Pure. A *group* is what was decoded together: one prompt, unless the run is batched. Speeds are
taken per group and seed: its tokens over its wall-clock seconds, prefill included, the median over
repeats. A group's value is the median over its seeds. Counts and ratios are pooled over all rows.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias, TypeVar

import numpy as np

from draftwood.lab.bench.acceptance import AcceptanceCounts, merged
from draftwood.lab.bench.document import Divergence, MethodResult
from draftwood.lab.bench.figures import DepthRate, Metrics, RankCount, RunRow, Section, SourceRate
from draftwood.lab.bench.intervals import Median, Ratio, median_interval, ratio_intervals
from draftwood.lab.bench.reliability import reliability


def speedup(
    tau: float, draft_cost: float, draft_efficiency: float, verification: float = 1.0
) -> float:
    """Eq. 7: ``tau / (1 + c * delta)``, where verifying a tree costs what one token costs.

    Args:
        tau: mean acceptance length, tokens per step.
        draft_cost: c, one draft forward over one target forward.
        draft_efficiency: delta, draft forwards per target forward.
        verification: T(n) / T(1), cost of a target forward over a tree; it replaces the 1.
    """
    return tau / (verification + draft_cost * draft_efficiency)


GroupSeed: TypeAlias = tuple[int, int]
"""A group and the seed it was decoded with."""


@dataclass(frozen=True)
class Baselines:
    """Rows that speeds are compared with: plain decoding, by us and by transformers."""

    ar: Sequence[RunRow] = ()
    hf: Sequence[RunRow] = ()


def aggregate(rows: Sequence[RunRow], baselines: Baselines) -> Metrics:
    """Metrics of a method's rows; speed-ups are paired by group and seed."""
    acceptance = merged(row.acceptance for row in rows)
    tau, rate, efficiency, repeated, *rates = _ratios(rows, acceptance)
    depths, sources = acceptance.by_depth, acceptance.by_source
    texts = _texts(rows)
    compared = _compared(rows)
    spent = _phases(rows)
    total = sum(spent.values())
    own = {(row.group, row.run_seed) for row in rows}
    predicted = _predicted(rows, [ar for ar in baselines.ar if (ar.group, ar.run_seed) in own])
    fast = speeds(rows)
    memory = [row.peak_memory_mb for row in rows if row.peak_memory_mb is not None]
    return Metrics(
        prompts=len({row.id for row in rows}),
        tokens=sum(row.tokens for row in rows),
        tokens_per_second=_over_groups(fast),
        speedup_vs_ar=_over_groups(_paired(fast, speeds(baselines.ar))),
        speedup_vs_hf=_over_groups(_paired(fast, speeds(baselines.hf))),
        ttft_ms=_medians(rows, lambda row: row.ttft * 1e3),
        tpot_ms=_medians(rows, lambda row: None if row.tpot is None else row.tpot * 1e3),
        mean_acceptance_length=tau,
        acceptance_rate=rate,
        draft_calls=sum(row.draft_calls for row in rows),
        draft_efficiency=efficiency,
        predicted_speedup=predicted and predicted[0],
        predicted_speedup_with_verification=predicted and predicted[1],
        target_calls=sum(row.steps for row in rows),
        identical=sum(compared.values()),
        compared=len(compared),
        texts=len(texts),
        looping_texts=sum(texts.values()),
        repeated_8grams=repeated,
        acceptance_by_depth=tuple(
            DepthRate(depth, *counts, found)
            for (depth, counts), found in zip(depths.items(), rates[: len(depths)], strict=True)
        ),
        acceptance_by_source={
            source: SourceRate(*counts, found)
            for (source, counts), found in zip(sources.items(), rates[len(depths) :], strict=True)
        },
        acceptance_by_rank=tuple(
            RankCount(*place, *counts) for place, counts in acceptance.by_rank.items()
        ),
        routes=_summed(row.routes for row in rows),
        kinds=_summed(row.kinds for row in rows),
        phases=spent,
        time_share={phase: seconds / total for phase, seconds in spent.items()} if total else {},
        overhead_percent=100 * (1 - spent["target"] / total) if total else None,
        overhead_ms_per_step=_medians(rows, lambda row: row.overhead_ms_per_step),
        peak_memory_mb=median(memory) if memory else None,
    )


def section(rows: Sequence[RunRow], baselines: Baselines) -> Section:
    """Metrics of some rows, with and without looping outputs."""
    calm = aggregate(without_looping(rows), baselines)
    return Section(**vars(aggregate(rows, baselines)), without_looping=calm)


def speeds(rows: Iterable[RunRow]) -> dict[GroupSeed, float]:
    """Tokens per second of each group and seed: of each repeat, then the median over repeats."""
    tokens: dict[tuple[GroupSeed, int], int] = defaultdict(int)
    seconds: dict[tuple[GroupSeed, int], float] = {}
    for row in rows:
        place = ((row.group, row.run_seed), row.repeat)
        tokens[place] += row.tokens
        # A prompt with fewer turns has left the group when it ends: the longest stay is the group's
        seconds[place] = max(seconds.get(place, 0.0), row.group_seconds)
    by_key: dict[GroupSeed, list[float]] = defaultdict(list)
    for place, total in seconds.items():
        by_key[place[0]].append(tokens[place] / total)
    return {key: median(found) for key, found in by_key.items()}


def without_looping(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows of groups and seeds in which no answer loops, in any repeat."""
    wrong = {(row.group, row.run_seed) for row in rows if row.looping}
    return [row for row in rows if (row.group, row.run_seed) not in wrong]


def sections(
    rows: Sequence[RunRow], baselines: Baselines, name: Callable[[RunRow], str]
) -> dict[str, Section]:
    """The sections of the rows that share a name, by name."""
    chosen: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        chosen[name(row)].append(row)
    return {key: section(found, baselines) for key, found in chosen.items()}


def method_entry(
    name: str,
    rows: Sequence[RunRow],
    baselines: Baselines,
    divergences: Sequence[Divergence],
    settings: Mapping[str, object],
) -> MethodResult:
    """A method's entry in the document: figures, settings, rows and divergences.

    A prompt with a difference that is not explained (the run was interrupted) counts neither as
    rounding nor as a fault.
    """
    faults = {found.id for found in divergences if found.fault}
    unknown = {found.id for found in divergences if found.near_tie is None}
    several = len({row.run_seed for row in rows}) > 1
    return MethodResult(
        **vars(section(rows, baselines)),
        name=name,
        by_set=sections(rows, baselines, lambda row: row.set),
        by_task=sections(rows, baselines, lambda row: row.task),
        by_seed=sections(rows, baselines, lambda row: str(row.run_seed)) if several else {},
        near_ties=sum(found.near_tie is True for found in divergences),
        rounding_prompts=len({found.id for found in divergences} - faults - unknown),
        fault_prompts=len(faults),
        divergences=tuple(divergences),
        settings=settings,
        rows=tuple(rows),
        reliability=reliability(rows),
    )


def _predicted(rows: Sequence[RunRow], plain: Sequence[RunRow]) -> tuple[float, float] | None:
    """TALON's Eq. 7 without and with the cost of verifying, from this run's own phases.

    All drafting counts as the draft forwards' cost, so that drafters without a model, whose
    efficiency is 0, are predicted as if they drafted for nothing.
    """
    spent, target = _phases(rows), _phases(plain).get("target")
    steps, plain_steps = (sum(row.steps for row in each) for each in (rows, plain))
    if not (steps and plain_steps and target and spent.get("target")):
        return None
    alone = target / plain_steps
    verification = spent["target"] / steps / alone
    calls = sum(row.draft_calls for row in rows)
    cost = spent["draft"] / calls / alone if calls else 0.0
    tau, delta = sum(row.committed for row in rows) / steps, calls / steps
    return speedup(tau, cost, delta), speedup(tau, cost, delta, verification)


def _ratios(rows: Sequence[RunRow], acceptance: AcceptanceCounts) -> list[Ratio]:
    """τ, acceptance rate, δ, repeated 8-grams, then the rates by depth and by source."""
    groups = {group: i for i, group in enumerate(dict.fromkeys(row.group for row in rows))}
    depths, sources = acceptance.by_depth, acceptance.by_source
    sums = np.zeros((len(groups), 4 + len(depths) + len(sources), 2))
    for row in rows:
        counts = row.acceptance
        sums[groups[row.group]] += [
            (row.committed, row.steps),
            (row.accepted, row.drafted),
            (row.draft_calls, row.steps),
            (row.repeated_8grams, row.total_8grams),
            *(counts.by_depth.get(depth, (0, 0))[::-1] for depth in depths),
            *(counts.by_source.get(source, (0, 0))[::-1] for source in sources),
        ]
    return ratio_intervals(sums[:, :, 0], sums[:, :, 1])


def _texts(rows: Iterable[RunRow]) -> dict[tuple[str, int, int], bool]:
    """Whether each answer loops, in any repeat: by prompt, seed and turn."""
    found: dict[tuple[str, int, int], bool] = defaultdict(bool)
    for row in rows:
        for turn, each in enumerate(row.repeats):
            found[row.id, row.run_seed, turn] |= each.loops
    return found


def _compared(rows: Iterable[RunRow]) -> dict[str, bool]:
    """Whether all rows of a prompt are identical, for each prompt that was compared."""
    found: dict[str, bool] = {}
    for row in rows:
        if row.identical is not None:
            found[row.id] = found.get(row.id, True) and row.identical
    return found


def _phases(rows: Iterable[RunRow]) -> dict[str, float]:
    """Seconds of decoding by phase; empty if no row knows its phases."""
    found = _summed(row.phases for row in rows)
    return found if "target" in found else {}


N = TypeVar("N", int, float)


def _summed(parts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)
    return dict(whole)


def _paired(
    fast: Mapping[GroupSeed, float], plain: Mapping[GroupSeed, float]
) -> dict[GroupSeed, float]:
    return {key: speed / plain[key] for key, speed in fast.items() if key in plain}


def _medians(rows: Sequence[RunRow], value: Callable[[RunRow], float | None]) -> Median:
    """The median over the rows of each group and seed, then over seeds and groups."""
    found: dict[GroupSeed, list[float]] = defaultdict(list)
    for row in rows:
        known = value(row)
        if known is not None:
            found[row.group, row.run_seed].append(known)
    return _over_groups({key: median(values) for key, values in found.items()})


def _over_groups(values: Mapping[GroupSeed, float]) -> Median:
    """The median over seeds is a group's value; the median over groups is the figure."""
    by_group: dict[int, list[float]] = defaultdict(list)
    for (group, _), value in values.items():
        by_group[group].append(value)
    return median_interval([median(found) for found in by_group.values()])
