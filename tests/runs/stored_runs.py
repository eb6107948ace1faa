"""Stored runs made by hand, and the pages made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from draftwood.engine.stats import Tally
from draftwood.files import encode
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.document import SCHEMA, Divergence, Document
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.loops import Repeats
from runs.results_page.stored import Run, compact
from tests.factories.bench_rows import counted, repeating, row

ROOT = Path(__file__).parents[2]

QUIET = {"share": 0.01, "timed_share": 0.01, "limit": 0.05, "unknown": None}
BUSY = {"share": 0.1, "timed_share": 0.1, "limit": 0.05, "unknown": None}


def origin(temperature: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Provenance of a run that may be published, times included."""
    return {
        "command": "draftwood bench",
        "date": "2026-01-02T03:04:05+00:00",
        "git": {"commit": "c0ffee" + 34 * "0", "dirty": False},
        "model": {"name": "embedded", "parameters": 6_200_000, "dtype": "float32"},
        "settings": {"sampling": {"temperature": temperature}, "batch": 1, "max_new_tokens": 64},
        "other_processes": QUIET,
        **changes,
    }


def timed(*speeds: float, set: str = "humaneval", first: int = 0, looping: int = 0) -> list[RunRow]:
    """Rows of ten tokens, one for each speed in tokens a second; the last ones loop."""
    rows = [
        row(f"{set}/{i}", group=first + i, set=set, seconds=10 / speed)
        for i, speed in enumerate(speeds)
    ]
    split = len(rows) - looping
    return [*rows[:split], *(repeating(each, Repeats(10, 10)) for each in rows[split:])]


def committing(rows: Sequence[RunRow], tokens_a_step: float) -> list[RunRow]:
    """The rows with so many tokens in each of 100 steps."""
    tally = Tally(steps=100, committed=round(100 * tokens_a_step))
    return [replace(row, **counted(tally)) for row in rows]


def bench(
    methods: Mapping[str, Sequence[RunRow]],
    divergences: Mapping[str, Sequence[Divergence]] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Document that ``draftwood bench`` would write of these rows."""
    baselines = Baselines(methods["ar"], methods.get("hf", ()))
    entries = {
        name: method_entry(name, rows, baselines, (divergences or {}).get(name, ()), {})
        for name, rows in methods.items()
    }
    whole = Document(SCHEMA, True, provenance or origin(), entries, {}, ())
    return cast(dict[str, Any], encode(whole))


def stored(run: Mapping[str, Any], part: str = "every_method.sh greedy_1") -> Run:
    """Run as it is stored, made by this part of a script."""
    script, _, named = part.partition(" ")
    return compact(run, script, named)
