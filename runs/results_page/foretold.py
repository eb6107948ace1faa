"""How far the chances that `auto` foretells come true, in runs with a tuner that is kept.

Knows the reliability members of a bench document, not how they were counted.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from results_page.documents import Runs, provenance, sample
from results_page.markdown import table
from results_page.search import percent

PREFIX = "reliability"
PARTS = {"all_steps": "all", "late_steps": "after the 200th"}


def errors(reliability: Mapping[str, Any]) -> Iterable[list[str]]:
    """One row for the tokens of all steps and for each source's candidates, and the same for late
    steps: how many, expected, what came, and the error."""
    for part, steps in PARTS.items():
        found = reliability[part]
        yield row(steps, "tokens", found["steps"], found, "committed")
        for source, sums in found["by_source"].items():
            yield row(steps, source, sums["candidates"], sums, "taken")


def row(steps: str, what: str, count: int, sums: Mapping[str, Any], came: str) -> list[str]:
    """Of one kind of what was foretold."""
    error = sums["error"]
    ends = [percent(error[end]) for end in ("low", "high")]
    shown = [f"{sums['expected']:.0f}", str(sums[came]), percent(error["value"]), " to ".join(ends)]
    return [steps, what, str(count), *shown]


def foretold(runs: Runs) -> Iterable[str]:
    """A table for each such run, by method."""
    found = {name: run for name, run in runs.items() if name.startswith(PREFIX)}
    if not found:
        return
    yield "## Can the chances of `auto` be believed?\n"
    yield (
        "What was expected over what came, less one, of the steps' tokens and of the candidates by "
        "the source that was the first to offer them, drafted or not. The tuner is kept from "
        "prompt to prompt and has not seen texts like these before.\n"
    )
    header = ["method", "steps", "of", "how many", "expected", "came", "error", "95 %"]
    for run in found.values():
        rows = [
            [f"`{name}`", *line]
            for name, entry in run["methods"].items()
            if "reliability" in entry
            for line in errors(entry["reliability"])
        ]
        yield sample(run)
        yield table(header, rows) + "\n"
        yield provenance(run) + "\n"
