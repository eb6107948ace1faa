"""Runs written to a directory, and the page of results made of them."""

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from draftwood.lab.bench.aggregate import Baselines
from draftwood.lab.bench.divergence import Divergence
from draftwood.lab.bench.document import document, method_entry
from draftwood.lab.bench.rows import Row
from draftwood.lab.loops import Repeats
from tests.factories.bench_rows import row

RUNS = Path(__file__).parents[3] / "runs"
SCRIPT = RUNS / "results.py"
ORIGIN: dict[str, Any] = {
    "command": "draftwood bench",
    "date": "2026-01-02T03:04:05+00:00",
    "git": {"commit": "c0ffee" + 34 * "0", "dirty": False},
    "other_processes": {"share": 0.01, "timed_share": 0.01, "limit": 0.05, "unknown": None},
}
"""Of a run that may be printed, times included."""
needs_runs = pytest.mark.skipif(not SCRIPT.exists(), reason="only a checkout has runs/")


def page(directory: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # Where Python itself looks first for the modules of a script.
        patch.syspath_prepend(RUNS)
        main = runpy.run_path(str(SCRIPT))["main"]
    return CliRunner().invoke(main, ["--data", str(directory)])


def text(directory: Path) -> str:
    done = page(directory)
    assert done.exit_code == 0, done.output
    return str(done.output)


def module(name: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(RUNS)
        return import_module(f"results_page.{name}")


def keep(path: Path, run: Mapping[str, Any], part: str = "every_method.sh greedy_1") -> None:
    """Keep a run under the name of the path, as made by a part of a script."""
    kept = module("kept")
    script, _, named = part.partition(" ")
    kept.write(kept.compact(run, script, named), path.parent, path.name.partition(".")[0])


def timed(*speeds: float, set: str = "humaneval", first: int = 0, looping: int = 0) -> list[Row]:
    """A prompt of ten tokens for each speed, in tokens a second; the last ones loop."""
    rows = [
        row(f"{set}/{i}", group=first + i, set=set, seconds=10 / speed)
        for i, speed in enumerate(speeds)
    ]
    kept = len(rows) - looping
    return [*rows[:kept], *(replace(each, repeats=(Repeats(10, 10),)) for each in rows[kept:])]


def save(
    path: Path,
    methods: Mapping[str, Sequence[Row]],
    settings: Mapping[str, Mapping[str, object]] | None = None,
    divergences: Mapping[str, Sequence[Divergence]] | None = None,
    extra: Mapping[str, object] | None = None,
    origin: Mapping[str, Any] = ORIGIN,
) -> None:
    """What ``draftwood bench`` would have written of these rows, and members it does not know."""
    baselines = Baselines(methods["ar"], methods.get("hf", ()))
    entries = {
        name: {
            **method_entry(
                rows, baselines, (divergences or {}).get(name, ()), (settings or {}).get(name, {})
            ),
            **(extra or {}),
        }
        for name, rows in methods.items()
    }
    keep(path, {**document(origin, entries, {}, [], complete=True), **(extra or {})})
