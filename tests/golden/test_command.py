"""``python -m tests.golden``: files of both forms, differing cases, and other files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.__main__ import main

DATA = Path(__file__).parents[1] / "data"
TREES, VERIFICATIONS = DATA / "spine_trees.json", DATA / "verifications.json"


def stored(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_files_of_both_forms_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(TREES), str(VERIFICATIONS)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{TREES}: 8 of 8 cases agree, 930 numbers compared",
        f"{VERIFICATIONS}: 10 of 10 cases agree, 2436 numbers compared",
    ]


def test_differing_cases_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = stored(VERIFICATIONS)
    document["cases"][1]["traversal"]["expected_accepted"] += 0.001
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document), encoding="utf-8")
    assert main([str(wrong), str(TREES)]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{wrong}: chain: traversal: expected_accepted is")
    assert second.startswith(f"{wrong}: 9 of 10 cases agree")
    assert third.startswith(f"{TREES}: 8 of 8")


@pytest.mark.parametrize(
    ("path", "part", "text"),
    [
        (TREES, "cases", None),
        (TREES, "cases", "nodes in order of attachment; kinds: 0 root"),
        (VERIFICATIONS, "cases", None),
        (VERIFICATIONS, "cases", "end_prob[v] = probability"),
        (VERIFICATIONS, "ensembles", "none of the known words"),
    ],
)
def test_the_form_is_known_by_format_or_keys(
    tmp_path: Path, path: Path, part: str, text: str | None
) -> None:
    document = {part: stored(path)[part][:1]} | ({} if text is None else {"format": text})
    file = tmp_path / "g.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert main([str(file)]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "[]",
        "{}",
        '{"cases": 3}',
        '{"cases": [3]}',
        '{"cases": [], "format": "end_prob[v]"}',
        '{"cases": [{"tokens": []}]}',
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "g.json"
    file.write_text(text, encoding="utf-8")
    assert main([str(file), str(TREES)]) == 2
    found = capsys.readouterr()
    assert found.err.startswith("error: ")
    assert "g.json" in found.err
    assert "8 of 8 cases agree" in found.out


def test_without_files_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")
