"""Speed-ups over plain decoding, and where `auto` does not pay."""

from collections.abc import Iterable, Sequence
from typing import Any

from .markdown import estimate, number, percent, table
from .stored import Run, Runs, benchmarks, described, link

PLAIN = "ar"

GROUPS = (
    "`auto`",
    "best variant of `auto`",
    "best paper method",
    "`pld`",
    "transformers",
    "llama.cpp",
)


BY_PREFIX = {"auto": GROUPS[1], "pld": GROUPS[3], "hf": GROUPS[4], "llamacpp": GROUPS[5]}


def speedup(entry: dict[str, Any]) -> float:
    """Median speed-up over plain decoding; 0 if it is unknown."""
    return float(entry["speedup_vs_ar"]["median"] or 0.0)


def kind(method: str) -> str:
    """Assign a method to one of ``GROUPS``."""
    found = (group for prefix, group in BY_PREFIX.items() if method.startswith(prefix))
    return next(found, GROUPS[2])


def fastest(entries: dict[str, dict[str, Any]], group: str) -> str | None:
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
    rows = [
        [
            link(name, described(run)),
            *(speedup_of_fastest(run["methods"], group) for group in GROUPS),
        ]
        for name, run in timed(runs).items()
    ]
    if rows:
        yield table(["model, sampling, batch", *GROUPS], rows)


def speedup_of_fastest(entries: dict[str, dict[str, Any]], group: str) -> str:
    """The speed-up of the fastest method of a group, with its name and its interval."""
    name = fastest(entries, group)
    if name is None or not speedup(entries[name]):
        return "-"
    shown = estimate(entries[name]["speedup_vs_ar"])
    return shown if f"`{name}`" == group else f"`{name}` {shown}"


MANY = 6
"""Least sets of a run that is shown set by set."""
LOOPS = 0.2
"""Share of repeated 8-grams from which a set's figures say little about text."""


def by_set(runs: Runs) -> Iterable[str]:
    """Speed-ups set by set, beside the share of repeated 8-grams of plain decoding."""
    for name, run in timed(runs).items():
        entries = run["methods"]
        auto = str(fastest(entries, GROUPS[0]))
        if len(entries[PLAIN]["by_set"]) < MANY:
            continue
        rows = []
        for each, plain in entries[PLAIN]["by_set"].items():
            of_set = {method: entry["by_set"][each] for method, entry in entries.items()}
            share = plain["repeated_8grams"]["value"]
            shown = percent(share)
            rows.append(
                [
                    each,
                    str(plain["prompts"]),
                    estimate(of_set[auto]["speedup_vs_ar"]),
                    *(speedup_of_fastest(of_set, group) for group in GROUPS[2:]),
                    number(of_set[auto]["mean_acceptance_length"]["value"]),
                    f"**{shown}**" if share is not None and share >= LOOPS else shown,
                ]
            )
        header = ["set", "prompts", f"`{auto}`", *GROUPS[2:], f"τ of `{auto}`"]
        yield f"{link(name, described(run))}\n\n" + table([*header, "repeated 8-grams"], rows)


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
    own = speedup(entries[auto])
    for group in GROUPS[2:]:
        rival = fastest(entries, group)
        if rival is not None and own < speedup(entries[rival]):
            yield f"`{auto}` is {number(own / speedup(entries[rival]))}x `{rival}`"
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


def certain_losers(entries: dict[str, dict[str, Any]]) -> Sequence[str]:
    """Methods of ours whose interval of the speed-up ends below 1."""
    return [
        name
        for name, entry in entries.items()
        if kind(name) not in GROUPS[4:] and (entry["speedup_vs_ar"]["high"] or 1.0) < 1.0
    ]
