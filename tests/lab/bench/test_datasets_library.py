"""A local folder through the real package datasets, where it is installed."""

import json
from pathlib import Path

import pytest

from draftwood.lab.bench.prompts import read
from draftwood.lab.bench.sources import load
from tests.lab.bench import dataset_rows

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def folder(path: Path, **splits: list[dict[str, object]]) -> str:
    path.mkdir()
    for name, rows in splits.items():
        (path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return f"hf:{path}"


def test_the_split_test_is_taken_unless_another_is_named(tmp_path: Path) -> None:
    source = folder(tmp_path / "math", train=dataset_rows.GSM8K[:1], test=dataset_rows.GSM8K[1:])
    texts = {name: read([f"{source}{name}"])[0].turns[0] for name in ("", ":train", ":default")}
    assert texts[""] == texts[":default"] != texts[":train"]
    assert "Two crates" in texts[":train"]
    origins = {name: load(f"{source}{name}").origin for name in texts}
    assert origins[":train"]["split"] == "train"
    assert origins[""]["sha256"] == origins[":default"]["sha256"] != origins[":train"]["sha256"]


def test_a_column_that_a_row_lacks_is_no_key(tmp_path: Path) -> None:
    turns: dict[str, object] = {"id": "a/1", "task": "t", "turns": ["x", "y"]}
    source = folder(tmp_path / "mine", train=[*dataset_rows.OWN, turns])
    assert [(p.id, p.set, p.turns) for p in read([source])] == [
        ("a/0", "mine", ("hello",)),
        ("a/1", "mine", ("x", "y")),
    ]


@pytest.mark.parametrize("name", dataset_rows.ALL)
def test_rows_of_a_table_are_read_like_lines(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path / "data", data=dataset_rows.ALL[name][:1])
    assert read([source]) == read([tmp_path / "data" / "data.jsonl"])
