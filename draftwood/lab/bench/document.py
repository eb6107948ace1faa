"""The output file: what goes into it, and how it gets to the disk whole or not at all.

Knows nothing of how runs came about. There is no NaN in it: what is unknown is null.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from draftwood.files import write_text
from draftwood.lab.bench.aggregate import Baselines, report
from draftwood.lab.bench.divergence import Divergence
from draftwood.lab.bench.reliability import reliability
from draftwood.lab.bench.rows import Row, Run

SCHEMA = 3
"""Goes up when a figure changes its name, its shape or its meaning."""


def method_entry(
    rows: Sequence[Row],
    baselines: Baselines,
    divergences: Sequence[Divergence],
    settings: Mapping[str, object],
) -> dict[str, object]:
    """What the file says of one method; of its reliability only where something was foretold."""
    found = reliability(rows)
    return {
        **report(rows, baselines),
        **({} if found is None else {"reliability": asdict(found)}),
        "near_ties": sum(found.near_tie is True for found in divergences),
        **apart(divergences),
        "divergences": [vars(found) for found in divergences],
        "settings": dict(settings),
        "rows": [row.figures() for row in rows],
    }


def apart(divergences: Sequence[Divergence]) -> dict[str, int]:
    """Prompts whose tokens differ, by whether rounding explains every difference of theirs.

    What is not known to be a near tie or a fault, in a run that was interrupted, is neither.
    """
    faults = {found.id for found in divergences if found.fault}
    unknown = {found.id for found in divergences if found.near_tie is None}
    rounding = {found.id for found in divergences} - faults - unknown
    return {"rounding_prompts": len(rounding), "fault_prompts": len(faults)}


def excerpt_entries(runs: Iterable[Run]) -> list[dict[str, object]]:
    """What the file quotes: the excerpt of every run that has one, in order."""
    return [
        {
            "method": run.method,
            "id": run.prompt.id,
            "set": run.prompt.set,
            "task": run.prompt.task,
            **asdict(excerpt),
        }
        for run in runs
        if (excerpt := run.turns[0].excerpt) is not None
    ]


def document(
    provenance: Mapping[str, object],
    methods: Mapping[str, Mapping[str, object]],
    missing: Mapping[str, str],
    excerpts: Sequence[Mapping[str, object]],
    *,
    complete: bool,
) -> dict[str, object]:
    """The whole file as plain values; ``missing`` has a reason for each peer that was left out."""
    whole = {
        "schema": SCHEMA,
        "complete": complete,
        "provenance": provenance,
        "methods": methods,
        "missing": missing,
        "excerpts": excerpts,
    }
    return cast(dict[str, object], known(whole))


def summary(document: Mapping[str, object], path: Path | None) -> dict[str, object]:
    """The few figures that the last line on standard output holds."""
    kept = (
        "prompts",
        "tokens",
        "tokens_per_second",
        "speedup_vs_ar",
        "speedup_vs_hf",
        "mean_acceptance_length",
        "acceptance_rate",
        "identical",
        "compared",
        "near_ties",
        "rounding_prompts",
        "fault_prompts",
        "texts",
        "looping_texts",
    )
    methods = cast(Mapping[str, Mapping[str, object]], document["methods"])
    return {
        "complete": document["complete"],
        "json": None if path is None else str(path),
        "methods": {name: {key: entry[key] for key in kept} for name, entry in methods.items()},
        "missing": document["missing"],
    }


def known(value: object) -> object:
    """The value with null for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): known(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [known(item) for item in value]
    return value


def write(path: Path, content: Mapping[str, object]) -> None:
    """Write JSON in one step."""
    write_text(path, json.dumps(content, allow_nan=False, indent=1) + "\n")
