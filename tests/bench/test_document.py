"""The output file: no NaN, whole or not at all."""

import json
import math
import os
from pathlib import Path

import pytest

from draftwood.bench.divergence import Divergence
from draftwood.bench.document import document, known, method_entry, summary, write
from tests.bench.made import row


def entry() -> dict[str, object]:
    rows = [row("a"), row("b", group=1, tokens=1)]
    found = [Divergence("a", 0, 0, 3, 1, 2, 1e-7, True), Divergence("b", 0, 0, 0, 1, 2, 0.5)]
    return method_entry(rows, rows, found, {"budget": 59})


def test_unknown_figures_are_null() -> None:
    assert known({"a": [math.nan, math.inf, 1.5], "b": ("x", None, True)}) == {
        "a": [None, None, 1.5],
        "b": ["x", None, True],
    }
    text = json.dumps(document({}, {"ar": entry()}, {}, complete=True), allow_nan=False)
    back = json.loads(text)["methods"]["ar"]
    assert back["p_s"] is None
    assert back["rows"][1]["tpot"] is None
    assert back["near_ties"] == 1
    assert back["divergences"][1]["gap"] == 0.5


def test_the_summary_is_a_part_of_the_document() -> None:
    whole = document({}, {"ar": entry()}, {"hf": "gone"}, complete=False)
    short = summary(whole, Path("out.json"))
    assert short["complete"] is False
    assert short["json"] == "out.json"
    assert short["missing"] == whole["missing"] == {"hf": "gone"}
    methods = short["methods"]
    assert isinstance(methods, dict)
    assert methods["ar"]["prompts"] == 2
    assert "rows" not in methods["ar"]


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
