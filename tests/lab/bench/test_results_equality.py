"""The table of every method with every drafter: tokens where they are promised, else the law."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftwood.lab.bench.divergence import Divergence
from draftwood.lab.bench.rows import Row
from tests.lab.bench.kept_runs import ORIGIN, keep, needs_runs, save, text, timed

pytestmark = needs_runs


SAMPLED = {**ORIGIN, "settings": {"sampling": {"temperature": 0.8}}}
GREEDY = {**ORIGIN, "settings": {"sampling": {"temperature": 0.0}}}


def alike(*identical: bool | None) -> list[Row]:
    rows = timed(*[10.0] * len(identical))
    return [replace(row, identical=same) for row, same in zip(rows, identical, strict=True)]


def left(position: int, *, near_tie: bool) -> Divergence:
    return Divergence("humaneval/0", 0, 0, 0, position, 1, 2, 0.5, 1e-5, near_tie)


def law(p_value: float, *methods: str, origin: Mapping[str, Any] = ORIGIN) -> dict[str, Any]:
    """What ``draftwood check-lossless --json`` prints."""
    checks: list[dict[str, Any]] = []
    for name in methods:
        kept = {"subject": name, "passed": True}
        sampled = {"statistic": 12.34, "degrees": 9, "p_value": p_value, "accepted": 77}
        checks += [
            {**kept, "kind": "exact", "difference": 1.1e-16, "text": "exact law"},
            {**kept, "kind": "sampled", **sampled, "passed": p_value > 1e-3},
            {**kept, "kind": "greedy"},
        ]
    told = {"samples": 1000, "temperature": 0.8, "top_k": 4}
    return {"provenance": {**origin, "settings": told}, "lossless": True, "checks": checks}


def test_tokens_and_laws_are_one_table(tmp_path: Path) -> None:
    greedy = {
        "ar": alike(None, None),
        "goose": alike(True, True),
        "talon": alike(False, True),
        "sd": alike(False, True),
        "rrsw": alike(True, True),
    }
    wrong = {"talon": [left(3, near_tie=True)], "sd": [left(4, near_tie=False)]}
    save(tmp_path / "equality_greedy_1.json", greedy, divergences=wrong, origin=GREEDY)
    save(
        tmp_path / "equality_sampled_1.json",
        {"ar": alike(None), "goose": alike(True)},
        origin=SAMPLED,
    )
    keep(
        tmp_path / "equality_law_model.json", law(0.314, "rrsw", "auto:drafter=model:layout=either")
    )
    page = text(tmp_path)
    lines = [
        "| method | greedy_1 | sampled_1 | law |",
        "| --- | --- | --- | --- |",
        "| `ar` | - | - | - |",
        "| `goose` | 2 / 2 | 1 / 1 | - |",
        "| `talon` | 1 / 2 (1 near tie) | - | - |",
        "| `sd` | **1 / 2** | - | - |",
        "| `rrsw` | 2 / 2 | law only | p = 0.31 |",
        "| `auto:drafter=model:layout=either` | - | law only | p = 0.31 |",
        "| all | **6 / 8 (1 near tie)** | 1 / 1 | 2 / 2 pass |",
    ]
    assert "\n".join(lines) in page
    assert "| `rrsw` | 1e-16 | 12.3 | 9 | p = 0.31 | 77 |" in page
    assert "1000 continuations of each method, temperature 0.8, top-k 4. `equality_law_mo" in page
    assert "All of commit `c0ffee0`:" in page
    assert "- Is it lossless?" not in page


def test_a_law_that_is_not_kept_is_a_fault(tmp_path: Path) -> None:
    save(
        tmp_path / "equality_sampled_1.json",
        {"ar": alike(None), "goose": alike(True)},
        origin=SAMPLED,
    )
    keep(tmp_path / "equality_law_model.json", law(1e-5, "rrsw"))
    page = text(tmp_path)
    assert "| `rrsw` | law only | **p = 1e-05** |" in page
    assert "| all | 1 / 1 | 0 / 1 pass |" in page


def test_two_commits_are_two_tables(tmp_path: Path) -> None:
    save(
        tmp_path / "equality_greedy_1.json",
        {"ar": alike(None), "goose": alike(True)},
        origin=GREEDY,
    )
    other = {**ORIGIN, "git": {"commit": "b" * 40, "dirty": False}}
    keep(tmp_path / "equality_law_model.json", law(0.5, "rrsw", origin=other))
    page = text(tmp_path)
    assert "| method | greedy_1 | law |" in page
    assert "| method | law |" in page
    assert "All of commit `c0ffee0`:" in page
    assert "All of commit `bbbbbbb`:" in page
    assert "| method | greedy_1 | sampled_1 |" not in page


@pytest.mark.parametrize("busy", [False, True])
def test_equality_holds_no_times(tmp_path: Path, *, busy: bool) -> None:
    share = {"share": 0.9, "timed_share": 0.9, "limit": 0.05, "unknown": None}
    origin = {**GREEDY, **({"other_processes": share} if busy else {})}
    save(
        tmp_path / "equality_greedy_1.json",
        {"ar": alike(None), "goose": alike(True)},
        origin=origin,
    )
    assert "| `goose` | 1 / 1 | - |" in text(tmp_path)


def test_papers_runs_have_tables_of_their_own(tmp_path: Path) -> None:
    save(tmp_path / "lossless_greedy.json", {"ar": alike(None), "goose": alike(True)})
    page = text(tmp_path)
    assert "| method | compared | identical | near ties |" in page
    assert "| `goose` | 1 | 1 | 0 |" in page
    assert "Every method with every drafter" not in page
