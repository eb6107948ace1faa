"""Runs as the repository keeps them: what the page reads of a run, and where it comes from.

A kept run is a gzipped JSON file of at most :data:`LARGEST` bytes: a document of ``draftwood
bench`` without what the page never reads, or what another command printed, whole. It
has two members more: ``made_by``, the script and the part that made it, and ``times``, whether its
times may be shown. A run beside which other processes used too much of the cores is kept without
times, or not at all if it has nothing else.
"""

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from draftwood.lab.bench.quiet import objection

LARGEST = 500_000

FIGURES = frozenset(
    [
        "prompts",
        "tokens",
        "texts",
        "looping_texts",
        "repeated_8grams",
        "mean_acceptance_length",
        "acceptance_rate",
        "draft_efficiency",
        "identical",
        "compared",
        "near_ties",
        "divergences",
        "settings",
        "routes",
        "kinds",
        "acceptance_by_source",
        "without_looping",
        "by_set",
        "rows",
    ]
)
MEDIANS = frozenset(["tokens_per_second", "speedup_vs_ar", "speedup_vs_hf", "ttft_ms", "tpot_ms"])
PREDICTED = frozenset(("predicted_speedup", "predicted_speedup_with_verification"))
"""Members of a method's entry that the page reads; the last two kinds hold times."""

COLUMNS = frozenset(["set", "group", "run_seed", "repeat", "tokens", "group_seconds", "looping"])
"""Members of a row that the page reads, all for speeds."""

UNTIMED = frozenset(("checks", "lossless", "peak_memory", "methods"))
TIMED = frozenset(
    ("cost_ms_by_nodes", "steps", "index_memory", "verifying_ms", "milliseconds_by_threads")
)
"""Members of what other commands print: without times, and with."""

UNKNOWN = {"median": None, "low": None, "high": None}


def compact(run: Mapping[str, Any], script: str, part: str) -> dict[str, Any]:
    """A run as it is kept.

    Args:
        run: what ``draftwood bench`` or another command wrote.
        script: name of the file in ``runs/`` that called it.
        part: which of the script's parts.

    Raises:
        ClickException: it has nothing but times that may not be shown, or members that nobody has
            said to be times or none.
    """
    kept = {**run, "provenance": _without_directories(run["provenance"])}
    kept["made_by"] = {"script": script, "part": part}
    disturbed = objection(run)
    if "schema" in run:
        kept["times"] = disturbed is None
        kept["methods"] = {
            _without_directories(name): _entry(entry, times=kept["times"])
            for name, entry in run["methods"].items()
        }
        if "best" in run:
            kept["best"] = _without_directories(run["best"])
        kept.pop("excerpts", None)
        return kept
    members = run.keys() - {"provenance"}
    if not members <= UNTIMED | TIMED:
        strange = ", ".join(sorted(members - UNTIMED - TIMED))
        raise click.ClickException(f"nobody knows whether there are times in {strange}")
    kept["times"] = bool(members & TIMED)
    if kept["times"] and disturbed is not None:
        raise click.ClickException(f"its times may not be shown: {disturbed}")
    return kept


def _entry(entry: Mapping[str, Any], *, times: bool) -> dict[str, Any]:
    """A method's figures, or those of some of its rows."""
    found: dict[str, Any] = {name: entry[name] for name in FIGURES & entry.keys()}
    found |= {name: entry[name] if times else UNKNOWN for name in MEDIANS & entry.keys()}
    found |= {name: entry[name] if times else None for name in PREDICTED & entry.keys()}
    if "without_looping" in entry:
        found["without_looping"] = _entry(entry["without_looping"], times=times)
    if "by_set" in entry:
        found["by_set"] = {k: _entry(v, times=times) for k, v in entry["by_set"].items()}
    if "rows" in entry:
        rows = entry["rows"] if times else []
        found["rows"] = [{k: v for k, v in row.items() if k in COLUMNS} for row in rows]
    return found


def _without_directories(found: Any) -> Any:
    """Names of files without their directories, which are the measuring machine's own business."""
    if isinstance(found, str):
        return re.sub(r"(?<![\w:/])/[\w./-]*/", "", found)
    if isinstance(found, Mapping):
        return {key: _without_directories(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_without_directories(value) for value in found]
    return found


def write(run: Mapping[str, Any], directory: Path, name: str) -> None:
    """Write a kept run, and its provenance beside it as a file to read.

    Raises:
        ClickException: it is too large.
    """
    packed = gzip.compress(json.dumps(run).encode(), mtime=0)
    if len(packed) > LARGEST:
        raise click.ClickException(f"it has {len(packed)} bytes, more than {LARGEST}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json.gz").write_bytes(packed)
    origin = {"made_by": run["made_by"], **run["provenance"]}
    text = json.dumps(origin, indent=1, sort_keys=True, ensure_ascii=False)
    (directory / f"{name}.provenance.json").write_text(text + "\n", encoding="utf-8")
