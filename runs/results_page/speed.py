"""Speed-ups over plain decoding, and where `auto` does not pay."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from .markdown import estimate, number, percent, table
from .stored import Run, Runs, benchmarks, described, link, machine

PLAIN = "ar"

Methods: TypeAlias = Mapping[str, dict[str, Any]]
"""Entries of methods by name."""

GROUPS = (
    "`auto`",
    "best variant of `auto`",
    "best paper method",
    "`pld`",
    "transformers",
    "llama.cpp",
)


BY_PREFIX = {"auto": GROUPS[1], "pld": GROUPS[3], "hf": GROUPS[4], "llamacpp": GROUPS[5]}


LOOPS = 0.2
"""Share of repeated 8-grams from which a set's figures say little about text."""


def speedup(entry: Mapping[str, Any]) -> float:
    """Median speed-up over plain decoding; 0 if it is unknown."""
    return float(entry["speedup_vs_ar"]["median"] or 0.0)


def kind(method: str) -> str:
    """Assign a method to one of ``GROUPS``."""
    found = (group for prefix, group in BY_PREFIX.items() if method.startswith(prefix))
    return next(found, GROUPS[2])


def fastest(entries: Methods, group: str) -> str | None:
    """Name the fastest method of a group; the first variant of `auto` for its own group."""
    if group == GROUPS[0]:
        return next((name for name in entries if name.startswith("auto")), None)
    found = [name for name in entries if kind(name) == group and name != PLAIN]
    return max(found, key=lambda name: speedup(entries[name]), default=None)


def timed(runs: Runs) -> Runs:
    """Benchmarks whose times may be shown, with `auto` and plain decoding among their methods."""
    return {
        name: run
        for name, run in benchmarks(runs).items()
        if run["times"] and PLAIN in run["methods"] and fastest(run["methods"], GROUPS[0])
    }


def speed(runs: Runs) -> Iterable[str]:
    """One table: a row for each run, a column for each group of methods."""
    rows = []
    for name, run in timed(runs).items():
        entries = run["methods"]
        without_loops = entries[str(fastest(entries, GROUPS[0]))]["without_looping"]
        rows.append(
            [
                link(name, described(run)),
                str(entries[PLAIN]["prompts"]),
                *(speedup_of_fastest(entries, group) for group in GROUPS),
                estimate(without_loops["speedup_vs_ar"]),
                loops(entries[PLAIN]),
                machine(run),
            ]
        )
    if rows:
        header = ["model, sampling, batch", "prompts", *GROUPS]
        yield table([*header, "`auto` without loops", "repeated 8-grams", "measured on"], rows)


def loops(plain: Mapping[str, Any]) -> str:
    """The share of repeated 8-grams of plain decoding, in bold from ``LOOPS`` on."""
    return marked(plain["repeated_8grams"]["value"])


def marked(share: float | None) -> str:
    """A share of repeated 8-grams, in bold from ``LOOPS`` on."""
    shown = percent(share)
    return f"**{shown}**" if share is not None and share >= LOOPS else shown


def speedup_of_fastest(entries: Methods, group: str) -> str:
    """The speed-up of the fastest method of a group, with its name and its interval."""
    name = fastest(entries, group)
    if name is None or not speedup(entries[name]):
        return "-"
    shown = estimate(entries[name]["speedup_vs_ar"])
    return shown if f"`{name}`" == group else f"`{name}` {shown}"


MANY = 6
"""Least sets of a run that is shown set by set."""


def by_set(runs: Runs) -> Iterable[str]:
    """Speed-ups set by set and their means, beside the share of repeated 8-grams."""
    for name, run in timed(runs).items():
        entries = run["methods"]
        auto = str(fastest(entries, GROUPS[0]))
        if len(entries[PLAIN]["by_set"]) < MANY:
            continue
        cuts = of_sets(entries)
        rows = [
            [
                each,
                str(cut[PLAIN]["prompts"]),
                estimate(cut[auto]["speedup_vs_ar"]),
                *(speedup_of_fastest(cut, group) for group in GROUPS[2:]),
                number(over_best(cut, auto)),
                number(cut[auto]["mean_acceptance_length"]["value"]),
                loops(cut[PLAIN]),
            ]
            for each, cut in cuts.items()
        ]
        rows.append(
            [
                "mean of sets",
                str(entries[PLAIN]["prompts"]),
                mean(speedup(cut[auto]) for cut in cuts.values()),
                *(mean_of_fastest(cuts.values(), group) for group in GROUPS[2:]),
                mean(over_best(cut, auto) for cut in cuts.values()),
                number(entries[auto]["mean_acceptance_length"]["value"]),
                loops(entries[PLAIN]),
            ]
        )
        header = ["set", "prompts", f"`{auto}`", *GROUPS[2:], f"`{auto}` over the best of these"]
        header += [f"τ of `{auto}`", "repeated 8-grams"]
        yield f"{link(name, described(run))}, {machine(run)}:\n\n" + table(header, rows)
        names = variants(entries)
        means = [mean(speedup(cut[each]) for cut in cuts.values()) for each in names]
        if len(names) > 1:
            yield table(["", *(f"`{each}`" for each in names)], [["mean of sets", *means]])


def of_sets(entries: Methods) -> dict[str, dict[str, dict[str, Any]]]:
    """Entries of all methods, set by set."""
    return {
        each: {method: entry["by_set"][each] for method, entry in entries.items()}
        for each in entries[PLAIN]["by_set"]
    }


def variants(entries: Methods) -> list[str]:
    """`auto` and its variants, in the run's order."""
    return [name for name in entries if kind(name) == GROUPS[1]]


def cold(entries: Methods) -> str | None:
    """The variant of `auto` with nothing that ships for the model."""
    found = (name for name in variants(entries) if "shipped=off" in name.split(":"))
    return next(found, None)


UNPREPARED = frozenset(
    ["goose", "iso3", "iso5", "tr", "pld", "hf", "hf-lookup", "llamacpp", "llamacpp-lookup"]
)
"""Methods that draft without a model; with settings they may have a table that was prepared."""


def cold_rivals(entries: Methods) -> dict[str, float]:
    """Speed-ups of the fastest method of each group that has nothing prepared for the model."""
    own = {
        name: each
        for name, each in entries.items()
        if name.partition(":")[0] in UNPREPARED and "table" not in name
    }
    return rivals(own)


def rivals(entries: Methods) -> dict[str, float]:
    """Speed-ups of the fastest method of each group that is not `auto`'s."""
    names = (fastest(entries, group) for group in GROUPS[2:])
    return {name: speedup(entries[name]) for name in names if name is not None}


def over_best(entries: Methods, auto: str) -> float | None:
    """Speed-up of `auto` over that of the fastest rival; none without one."""
    best = max(rivals(entries).values(), default=0.0)
    return speedup(entries[auto]) / best if best else None


def mean(values: Iterable[float | None]) -> str:
    """Format the mean of what is known."""
    known = [value for value in values if value]
    return number(fmean(known)) if known else "-"


def mean_of_fastest(cuts: Iterable[Methods], group: str) -> str:
    """The mean of sets of a group's fastest method, chosen anew in each set."""
    names = ((cut, fastest(cut, group)) for cut in cuts)
    return mean(speedup(cut[name]) for cut, name in names if name is not None)


def losses(runs: Runs) -> Iterable[str]:
    """A line for each run: faster rivals of `auto`, and what is slower than plain decoding."""
    lines = [
        f"- {link(name, described(run))}: {'; '.join(found)}."
        for name, run in timed(runs).items()
        if (found := list(shortfalls(run)))
    ]
    if lines:
        yield "\n".join(lines)
    elif timed(runs):
        yield "In no run above is `auto` slower than another method or than plain decoding."


def shortfalls(run: Run) -> Iterable[str]:
    """Describe where `auto` is behind, then which methods lose to plain decoding for certain."""
    entries = run["methods"]
    auto = str(fastest(entries, GROUPS[0]))
    yield from _behind(entries, auto, rivals, "other method")
    if bare := cold(entries):
        yield from _behind(entries, bare, cold_rivals, "method with nothing prepared")
    sets = [
        f"{name} {number(speedup(entry))}x"
        for name, entry in entries[auto]["by_set"].items()
        if 0 < speedup(entry) < 1
    ]
    if sets:
        yield f"`{auto}` is slower than plain decoding on {', '.join(sets)}"
    slower = [f"`{name}`" for name in certain_losers(entries)]
    if slower:
        yield f"slower than plain decoding beyond the interval: {', '.join(slower)}"


def _behind(
    entries: Methods, auto: str, others: Callable[[Methods], dict[str, float]], kind_of_rival: str
) -> Iterable[str]:
    """Describe where a variant of `auto` is behind others: in all, and set by set."""
    own = speedup(entries[auto])
    for rival, theirs in others(entries).items():
        if 0 < own < theirs:
            yield f"`{auto}` is {number(own / theirs)}x `{rival}`"
    behind = []
    for name, cut in of_sets(entries).items():
        theirs, rival = max(((v, k) for k, v in others(cut).items()), default=(0.0, ""))
        if 0 < speedup(cut[auto]) < theirs:
            behind.append(f"{name} {number(speedup(cut[auto]) / theirs)}x `{rival}`")
    if behind:
        yield f"`{auto}` is behind the fastest {kind_of_rival} of a set on {', '.join(behind)}"


def certain_losers(entries: Methods) -> Sequence[str]:
    """Methods of ours whose interval of the speed-up ends below 1."""
    return [
        name
        for name, entry in entries.items()
        if kind(name) not in GROUPS[4:] and (entry["speedup_vs_ar"]["high"] or 1.0) < 1.0
    ]
