"""The page of results: made of documents of today's schema only."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from draftwood.bench.acceptance import acceptance_of
from draftwood.bench.aggregate import Baselines
from draftwood.bench.document import SCHEMA, document, method_entry, write
from draftwood.stats import Tally
from tests.bench.made import random_steps, row

SCRIPT = Path(__file__).parents[2] / "runs" / "results.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="only a checkout has runs/")


def page(directory: Path) -> Any:
    main = runpy.run_path(str(SCRIPT))["main"]
    return CliRunner().invoke(main, ["--out", str(directory)])


def made(*names: str) -> dict[str, object]:
    steps = random_steps(20, seed=1)
    tally = Tally()
    for step in steps:
        tally.add(step)
    rows = [
        row(
            f"humaneval/{i}", group=i, set="humaneval", tally=tally, acceptance=acceptance_of(steps)
        )
        for i in range(3)
    ]
    entries = {name: method_entry(rows, Baselines(rows, rows), [], {}) for name in names}
    return document({"command": "draftwood bench"}, entries, {}, [], complete=True)


def test_speeds_are_shown_with_their_intervals(tmp_path: Path) -> None:
    write(tmp_path / "speed_greedy.json", made("ar", "hf", "goose"))
    done = page(tmp_path)
    assert done.exit_code == 0, done.output
    assert "| method | humaneval | all | 95 % of all |" in done.output
    assert done.output.count("| `goose` | 1.00 | 1.00 | 1.00-1.00 |") == 3
    assert "Over transformers' own `generate`" in done.output
    assert "| `goose` | 10 | 10 | 10-10 |" in done.output


def test_transformers_column_needs_transformers(tmp_path: Path) -> None:
    write(tmp_path / "speed_greedy.json", made("ar", "goose"))
    assert "Over transformers' own" not in page(tmp_path).output


def test_what_other_scripts_wrote_is_no_bench_document(tmp_path: Path) -> None:
    found = {"provenance": {}, "peak_memory": {"ar": {"peak_mb": 512.0, "tokens": 9}}}
    (tmp_path / "peak_memory.json").write_text(json.dumps(found))
    assert "| `ar` | 512 |" in page(tmp_path).output


@pytest.mark.parametrize("schema", [1, SCHEMA + 1])
def test_documents_of_another_schema_are_refused_by_name(tmp_path: Path, schema: int) -> None:
    write(tmp_path / "speed_greedy.json", {**made("ar"), "schema": schema})
    done = page(tmp_path)
    assert done.exit_code == 1
    assert "speed_greedy.json has schema" in done.output
    assert str(SCHEMA) in done.output
