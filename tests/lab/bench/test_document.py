"""The output file: no NaN, whole or not at all."""

import json
import math
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.aggregate import Baselines, Metrics
from draftwood.lab.bench.divergence import Divergence
from draftwood.lab.bench.document import (
    document,
    excerpt_entries,
    known,
    method_entry,
    summary,
    write,
)
from draftwood.lab.bench.excerpts import Committed, Excerpt, StepExcerpt
from tests.factories.bench_rows import row, run, step, tree, turn

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "bench.md"


def entry() -> dict[str, object]:
    rows = [row("a"), row("b", group=1, tokens=1)]
    found = [
        Divergence("a", 0, 0, 0, 3, 1, 2, 1e-7, 1e-5, True),
        Divergence("b", 0, 0, 0, 0, 1, 2, 0.5),
    ]
    return method_entry(rows, Baselines(rows), found, {"budget": 59})


def made(
    methods: dict[str, dict[str, object]], missing: dict[str, str] | None = None
) -> dict[str, object]:
    return document({}, methods, missing or {}, [], complete=False)


def test_unknown_figures_are_null() -> None:
    assert known({"a": [math.nan, math.inf, 1.5], "b": ("x", None, True)}) == {
        "a": [None, None, 1.5],
        "b": ["x", None, True],
    }
    whole = json.loads(json.dumps(made({"ar": entry()}), allow_nan=False))
    assert (whole["schema"], whole["complete"], whole["excerpts"]) == (3, False, [])
    back = whole["methods"]["ar"]
    assert back["speedup_vs_hf"] == {"median": None, "low": None, "high": None}
    assert back["mean_acceptance_length"] == {"value": None, "low": None, "high": None}
    assert back["peak_memory_mb"] is None
    assert (back["acceptance_by_depth"], back["acceptance_by_rank"]) == ([], [])
    assert back["rows"][1]["tpot"] is None
    assert back["near_ties"] == 1
    assert back["divergences"][1]["gap"] == 0.5


def test_the_summary_is_a_part_of_the_document() -> None:
    whole = made({"ar": entry()}, {"hf": "gone"})
    short = summary(whole, Path("out.json"))
    assert short["complete"] is False
    assert short["json"] == "out.json"
    assert short["missing"] == whole["missing"] == {"hf": "gone"}
    methods = short["methods"]
    assert isinstance(methods, dict)
    assert methods["ar"]["prompts"] == 2
    assert set(methods["ar"]["speedup_vs_hf"]) == {"median", "low", "high"}
    assert "rows" not in methods["ar"]


def test_what_was_accepted_is_written_with_its_rates() -> None:
    steps = [step(tree([-1, 0, 0], sources=["root", "x", "y"]), (2,))]
    rows = [
        row(name, group=group, acceptance=acceptance_of(steps))
        for group, name in enumerate(("a", "b"))
    ]
    found = method_entry(rows, Baselines(rows), [], {})
    back = json.loads(json.dumps(made({"goose": found})))["methods"]["goose"]
    assert back["acceptance_by_depth"] == [
        {"depth": 1, "offered": 2, "reached": 2, "rate": {"value": 1.0, "low": 1.0, "high": 1.0}}
    ]
    assert back["acceptance_by_source"]["x"] == {
        "drafted": 2,
        "accepted": 0,
        "rate": {"value": 0.0, "low": 0.0, "high": 0.0},
    }
    assert back["acceptance_by_rank"] == [
        {"depth": 1, "rank": 1, "offered": 2, "accepted": 0},
        {"depth": 1, "rank": 2, "offered": 2, "accepted": 2},
    ]


def test_runs_that_have_an_excerpt_are_quoted() -> None:
    quoted = Excerpt("p", (StepExcerpt("spine", 1, 1, (Committed("a", ""),), ("b",)),), ())
    runs = [
        run(turn((1,)), method="ar"),
        run(replace(turn((1,)), excerpt=quoted), turn((2,)), method="goose", id="a/7"),
    ]
    (found,) = json.loads(json.dumps(excerpt_entries(runs)))
    first = {
        "route": "spine",
        "drafted": 1,
        "depth": 1,
        "committed": [{"text": "a", "source": ""}],
        "rejected": ["b"],
    }
    assert found == {
        "method": "goose",
        "id": "a/7",
        "set": "a",
        "task": "test",
        "prompt": "p",
        "steps": [first],
        "trees": [],
    }


@pytest.mark.parametrize("key", [*(f.name for f in fields(Metrics)), *row().figures()])
def test_every_figure_is_defined_in_the_documentation(key: str) -> None:
    assert f"`{key}`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_writing_replaces_the_file_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    write(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write(path, {"a": 1})
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]
