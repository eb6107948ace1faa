"""What is left for `auto` to gain, from the plays of ``runs/auto_search`` over a recording.

Knows the names of their members, not how they were found.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from results_page.documents import Runs, origin
from results_page.markdown import number, table

PREFIX = "auto_search"
KINDS = {"free": "without a draft model", "drafted": "with a draft model"}


def percent(value: float | None) -> str:
    """A share as a percentage with its sign, or a dash where there is none."""
    return "-" if value is None else f"{100 * value:+.1f} %"


def nodes(part: Mapping[str, Any]) -> str:
    """τ of auto and of the others by groups of prompts, each with at most so many nodes."""
    names = [part["auto"], *part["others"]]
    groups = list(next(iter(part["sizes"].values())))
    rows = []
    for size, by_group in part["sizes"].items():
        for name in names:
            taus = [number(by_group[group][name]["tau"]) for group in groups]
            drafted = number(by_group["all"][name]["nodes"], 1)
            rows.append([size, f"`{name}`", *taus, drafted])
        gains = [percent(by_group[group]["gain"]) for group in groups]
        rows.append([size, "`auto` over the best other", *gains, "-"])
    return table(["most nodes", "τ", *groups, "drafted a step, all"], rows)


def faults(part: Mapping[str, Any]) -> str:
    """Tokens a second of auto, and of what it would be with one thing known or forgotten."""
    rows = part["rows"]
    groups = list(next(iter(rows.values()))["tokens_per_second"])
    lines = [
        [
            name,
            *(number(row["tokens_per_second"][group], 0) for group in groups),
            number(row["mean"], 0),
            percent(row["over_auto"]),
            percent(row.get("share_of_gap")),
            number(row["tau"]),
            number(row["nodes"], 1),
        ]
        for name, row in rows.items()
    ]
    header = ["tok/s as priced", *groups, "mean of the sets", "over `auto`", "of the gap"]
    best = ", ".join(f"{name} `{other}`" for name, other in part["best"].items())
    return f"{table([*header, 'τ', 'nodes'], lines)}\n\nBest other method of each set: {best}."


def foretold(found: Mapping[str, Any]) -> dict[str, Any]:
    """Candidates by source, then paths by their rank."""
    ranks = {f"path {band}": sums for band, sums in found.get("paths_by_rank", {}).items()}
    return {**found["sources"], **ranks}


def calibration(part: Mapping[str, Any]) -> str:
    """How far the accepted nodes that were foretold are from those that were accepted."""
    sets = part["sets"]
    rows = []
    for kind in next(iter(sets.values())):
        by_set = [foretold(by_kind[kind]) for by_kind in sets.values()]
        for source in dict.fromkeys(source for found in by_set for source in found):
            errors = [found[source]["error"] if source in found else None for found in by_set]
            rows.append([kind, source, *map(percent, errors)])
    return table(["tuner", "source", *sets], rows)


PARTS = {
    "nodes": (
        "Tokens a step with equal nodes",
        "`auto` stands for the likeliest of its candidates, as many as allowed; no cost counts.",
        nodes,
    ),
    "faults": (
        "With one part after another replaced",
        "What is replaced knows too much, or too little. *The gap* is what `auto` lacks to the "
        "last row in which something is foreseen.",
        faults,
    ),
    "calibration": (
        "Foretold acceptances",
        "Nodes that were foretold to be accepted, over those that were, less one. *Warm*: the "
        "tuner has learnt from earlier prompts of the set; *cold*: it starts with every prompt.",
        calibration,
    ),
}
"""By what a member's name begins with: a title, what it shows, and its table."""


def searched(runs: Runs) -> Iterable[str]:
    """Every part of every such run."""
    found = {name: run for name, run in runs.items() if name.startswith(PREFIX)}
    if not found:
        return
    yield (
        "Played over a recording of the target's answers: steps are priced by the costs that are "
        "named in the last line, so no figure here is a measured time.\n"
    )
    for name, run in found.items():
        for member, part in run.items():
            kind, _, source = member.partition("_")
            if kind in PARTS and source in KINDS:
                title, note, shown = PARTS[kind]
                yield f"### {title}, {KINDS[source]}\n\n{note}\n"
                yield shown(part) + "\n"
        yield origin(name, run) + "\n"
