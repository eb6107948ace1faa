"""The page of results: made of documents of today's schema only."""

import subprocess
import sys
from pathlib import Path

import pytest

from draftwood.engine.stats import Tally
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.aggregate import Baselines
from draftwood.lab.bench.document import SCHEMA, document, method_entry
from tests.factories.bench_rows import random_steps, row
from tests.lab.bench.kept_runs import ORIGIN, SCRIPT, keep, needs_runs, page, save, text, timed

pytestmark = needs_runs


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
    return document(ORIGIN, entries, {}, [], complete=True)


def test_speeds_are_shown_with_their_intervals(tmp_path: Path) -> None:
    keep(tmp_path / "speed_greedy.json", made("ar", "hf", "goose"))
    done = page(tmp_path)
    assert done.exit_code == 0, done.output
    assert "| method | humaneval | all | 95 % of all | repeated 8-grams |" in done.output
    assert done.output.count("| `goose` | 1.00 | 1.00 | 1.00-1.00 | 0% |") == 3
    assert "Over transformers' own `generate`" in done.output
    assert "| `goose` | 10 | 10 | 10-10 | 0% |" in done.output


def test_transformers_column_needs_transformers(tmp_path: Path) -> None:
    keep(tmp_path / "speed_greedy.json", made("ar", "goose"))
    assert "Over transformers' own" not in page(tmp_path).output


def test_what_other_scripts_wrote_is_no_bench_document(tmp_path: Path) -> None:
    found = {"provenance": ORIGIN, "peak_memory": {"ar": {"peak_mb": 512.0, "tokens": 9}}}
    keep(tmp_path / "peak_memory.json", found, "paper_dynatree.sh memory")
    assert "| `ar` | 512 |" in page(tmp_path).output


@pytest.mark.parametrize("schema", [1, SCHEMA + 1])
def test_documents_of_another_schema_are_refused_by_name(tmp_path: Path, schema: int) -> None:
    keep(tmp_path / "speed_greedy.json", {**made("ar"), "schema": schema})
    done = page(tmp_path)
    assert done.exit_code == 1
    assert "speed_greedy.json.gz may not be printed: it has schema" in done.output
    assert str(SCHEMA) in done.output


def test_it_is_called_from_anywhere(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", {"ar": timed(10, 20)})
    command = [sys.executable, str(SCRIPT), "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == text(tmp_path)
    assert "| `ar` | 15 | 15 |" in done.stdout


def test_members_of_later_versions_are_ignored(tmp_path: Path) -> None:
    methods = {"ar": timed(10, 10), "auto": timed(20, 30), "goose": timed(15, 15)}
    for name, extra in (("old", None), ("new", {"reliability": {"auto": [0.5]}})):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "every_speed_greedy_1.json", methods, extra=extra)
    assert text(tmp_path / "old") == text(tmp_path / "new")


def test_modules_are_small() -> None:
    for path in (SCRIPT, *(SCRIPT.parent / "results_page").glob("*.py")):
        assert len(path.read_text().splitlines()) < 200, path


def test_samples_tell_prompts_loops_and_tokens(tmp_path: Path) -> None:
    methods = {"ar": timed(10, 10, 10, looping=1), "goose": timed(10, 10, looping=2)}
    save(tmp_path / "speed_greedy.json", methods)
    assert (
        "Prompts: 2 to 3. Outputs: 2 to 3, of which 1 to 2 loop; repeated 8-grams: 33% to 100%. "
        "Tokens: 20 to 30, without looping outputs: 0 to 20.\n"
    ) in text(tmp_path)
