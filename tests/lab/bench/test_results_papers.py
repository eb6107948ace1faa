"""Ratios beside a paper's, and DynaTree's sweeps."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftwood.engine.stats import Tally
from draftwood.lab.bench.rows import Row
from tests.lab.bench.kept_runs import needs_runs, save, text, timed

pytestmark = needs_runs


def committing(rows: list[Row], tokens_a_step: int) -> list[Row]:
    return [replace(row, tally=Tally(steps=1, committed=tokens_a_step)) for row in rows]


@pytest.mark.parametrize("name", ["dynatree_long", "dynatree_512"])
def test_ratios_stand_beside_dynatrees(tmp_path: Path, name: str) -> None:
    other = timed(7, set="humaneval", first=9)
    methods = {
        "ar": timed(10, 10, 10, set="wikitext2_test") + other,
        "dynatree": timed(20, 20, 40, set="wikitext2_test", looping=1) + other,
        "fixed-tree": timed(20, 10, 10, set="wikitext2_test") + other,
    }
    save(tmp_path / f"{name}.json", methods)
    page = text(tmp_path)
    more = "more than in the paper |"
    assert (
        f"| `dynatree` over `ar` | wikitext2_test | 2.67 | 2.00 | 2.00 | 1.65 (Table 1) | {more}"
    ) in page
    assert (
        "| `dynatree` over `fixed-tree` | wikitext2_test | 2.00 | 2.00 | 1.33 | 1.09 (Table 1) | "
        f"{more}"
    ) in page
    assert "`dynatree` over `sd" not in page
    assert f"[provenance](../runs/data/{name}.provenance.json)" in page


def test_pg19_has_its_own_settings(tmp_path: Path) -> None:
    methods = {
        "ar": timed(10, set="pg_prompts"),
        "fixed-tree": timed(10, set="pg_prompts"),
        "dynatree:max_depth=10": timed(11, set="pg_prompts"),
    }
    save(tmp_path / "dynatree_long_pg.json", methods)
    line = (
        "| `dynatree:max_depth=10` over `fixed-tree` | pg_prompts | 1.10 | 1.10 | 1.10 | 1.05 (Ta"
    )
    assert line in text(tmp_path)


def test_talon_is_held_against_eagle3_with_as_many_nodes(tmp_path: Path) -> None:
    methods = {
        "ar": committing(timed(10, 10), 1),
        "eagle3": committing(timed(20, 20), 4),
        "eagle3:budget=15": committing(timed(20, 40), 4),
        "talon:drafter=eagle3": committing(timed(30, 40), 3),
        "talon:drafter=eagle3:budget=15": committing(timed(30, 30), 3),
        "talon:drafter=eagle3:budget=31": committing(timed(30, 30), 3),
        "talon:drafter=eagle3:mu=0.01": committing(timed(30, 30), 3),
    }
    settings = {
        name: {"budget": int(name.rpartition("=")[2]) if "budget" in name else 59}
        for name in methods
    }
    save(tmp_path / "talon_sweeps.json", methods, settings)
    save(tmp_path / "draft_tau_t1.json", methods, settings)
    page = text(tmp_path)
    ours = "| `talon:drafter=eagle3` over `eagle3` | 59 | 0.75 |"
    less, more = "less than in the paper", "more than in the paper"
    speed = f"{less} | 1.75 | 1.75 | 1.75 |"
    assert f"{ours} 0.92 to 1.14 (Table 1) | {speed} 1.03 to 1.18 (Table 1) | {more} |" in page
    assert f"{ours} 0.96 to 1.07 (Table 3) | {speed} 1.00 to 1.21 (Table 3) | {more} |" in page
    assert (
        "| `talon:drafter=eagle3:budget=15` over `eagle3:budget=15` "
        "| 15 | 0.75 | - | - | 1.00 | 1.12 | 1.00 | - | - |"
    ) in page
    assert page.count("` over `eagle3") == 4


def test_sweeps_are_one_table_in_order_of_their_numbers(tmp_path: Path) -> None:
    for tokens, speed, rival in ((1024, 30, 15), (128, 20, 10)):
        methods = {
            "ar": committing(timed(10, 10), 1),
            "fixed-tree": committing(timed(rival, rival), 2),
            "dynatree": committing(timed(speed, speed, looping=1), 3),
        }
        if tokens == 128:
            methods["sd:budget=8"] = committing(timed(5, 5), 4)
        save(tmp_path / f"dynatree_tokens_{tokens}.json", methods)
    page = text(tmp_path)
    lines = [
        "| method | new tokens | 128 | 1024 |",
        "| --- | --- | --- | --- |",
        "| `ar` | tok/s | 10 | 10 |",
        "| `ar` | speed-up | 1.00 | 1.00 |",
        "| `ar` | τ | 1.00 | 1.00 |",
        "| `fixed-tree` | tok/s | 10 | 15 |",
        "| `fixed-tree` | speed-up | 1.00 | 1.50 |",
        "| `fixed-tree` | τ | 2.00 | 2.00 |",
        "| `dynatree` | tok/s | 20 | 30 |",
        "| `dynatree` | speed-up | 2.00 | 3.00 |",
        "| `dynatree` | τ | 3.00 | 3.00 |",
        "| `sd:budget=8` | tok/s | 5 | - |",
        "| `sd:budget=8` | speed-up | 0.50 | - |",
        "| `sd:budget=8` | τ | 4.00 | - |",
        "| `dynatree` over `fixed-tree` | tok/s | 2.00 | 2.00 |",
        "| prompts |  | 2 | 2 |",
        "| with a looping output |  | 0 to 1 | 0 to 1 |",
        "| `ar` | repeated 8-grams | 0% | 0% |",
        "| `fixed-tree` | repeated 8-grams | 0% | 0% |",
        "| `dynatree` | repeated 8-grams | 50% | 50% |",
        "| `sd:budget=8` | repeated 8-grams | 0% | - |",
    ]
    assert "\n".join(lines) in page
    assert "| prompts |  | 1 to 2 | 1 to 2 |\n| `ar` | repeated 8-grams | 0% | 0% |" in page
    assert page.count("All of commit `c0ffee0`:") == 1
    assert "Figure 9" not in page
