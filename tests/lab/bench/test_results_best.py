"""Each method as published and at its best setting, side by side."""

from pathlib import Path

from tests.lab.bench.kept_runs import needs_runs, save, text, timed

pytestmark = needs_runs

TREE = "/home/me/best.sequoia-fastest.json"
BEST = {
    "file": "best.json",
    "by": "tokens_per_second",
    "methods": {
        "talon": {"published": "talon", "best": "talon:mu=0.2"},
        "pld": {"published": "pld", "best": "pld"},
        "sd": {"published": "sd", "best": "sd:budget=2"},
        "sequoia": {"published": f"sequoia:file={TREE}", "best": f"sequoia:file={TREE}"},
    },
}


def test_both_columns_stand_side_by_side(tmp_path: Path) -> None:
    methods = {
        "ar": timed(10, 10),
        "talon": timed(8, 8),
        "talon:mu=0.2": timed(15, 15),
        "pld": timed(12, 12, looping=1),
        f"sequoia:file={TREE}": timed(9, 9),
        "auto": timed(20, 20),
    }
    save(tmp_path / "best_speed_greedy_1.json", methods, extra={"best": BEST})
    page = text(tmp_path)
    lines = [
        "| `talon` | 8 | 0.80 | - | 15 | 1.50 | - | `talon:mu=0.2` | 0% |",
        "| `pld` | 12 | 1.20 | - | 12 | 1.20 | - | as published | 50% |",
        "| `sequoia` | 9 | 0.90 | - | 9 | 0.90 | - | as published | 0% |",
        "| `auto` | - | - | - | 20 | 2.00 | - | tunes itself | 0% |",
    ]
    assert "\n".join(lines) in page
    assert "found for it on other prompts of the same sets, by tokens a second:" in page
    assert "| `sd` |" not in page
    assert "not reliable" not in page
    assert "`sequoia:file=best.sequoia-fastest.json`" in page
    assert "/home/me" not in page


def test_a_disturbed_search_is_said(tmp_path: Path) -> None:
    best = {**BEST, "disturbed": "other processes used 40% of the cores"}
    methods = {"ar": timed(10), "talon": timed(8), "talon:mu=0.2": timed(15)}
    save(tmp_path / "best_speed_greedy_1.json", methods, extra={"best": best})
    assert "times of that search are not reliable: other processes used 40% of" in text(tmp_path)


def test_without_a_search_there_is_no_such_table(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", {"ar": timed(10), "goose": timed(12)})
    assert "As published" not in text(tmp_path)
    assert "as published" not in text(tmp_path)
