"""Errors of what was foretold, as a table."""

from pathlib import Path

from tests.bench.paging import needs_runs, save, text, timed

pytestmark = needs_runs


def error(value: float | None, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def test_tokens_and_candidates_by_source_of_all_steps_and_of_late_ones(tmp_path: Path) -> None:
    late = {
        "steps": 0,
        "expected": 0.0,
        "committed": 0,
        "error": error(None, None, None),
        "by_source": {},
    }
    context = {"candidates": 40, "expected": 33.0, "taken": 30, "error": error(0.1, 0.05, 0.2)}
    whole = {
        "steps": 12,
        "expected": 47.5,
        "committed": 50,
        "error": error(-0.05, -0.125, 0.0),
        "by_source": {"context": {**context, "bins": []}},
    }
    save(
        tmp_path / "reliability_warm.json",
        {"ar": timed(10.0), "auto": timed(20.0)},
        extra={"reliability": {"all_steps": whole, "late_steps": late}},
    )
    page = text(tmp_path)
    assert "## Can the chances of `auto` be believed?" in page
    assert "| `auto` | all | tokens | 12 | 48 | 50 | -5.0 % | -12.5 % to +0.0 % |" in page
    assert "| `auto` | all | context | 40 | 33 | 30 | +10.0 % | +5.0 % to +20.0 % |" in page
    assert "| `auto` | after the 200th | tokens | 0 | 0 | 0 | - | - to - |" in page
    assert "Prompts: 1, with a looping output: 0." in page


def test_without_such_a_run_there_is_no_section(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", {"ar": timed(10.0), "auto": timed(20.0)})
    assert "be believed?" not in text(tmp_path)
