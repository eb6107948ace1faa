"""Tables of TALON beside EAGLE-3's tree."""

import re
from dataclasses import replace

from draftwood.methods import method
from runs.results_page.page import page
from runs.results_page.papers import HEAD
from runs.results_page.talon import BUDGETS, DEFAULTS, THRESHOLDS
from tests.runs.stored_runs import ROOT, bench, committing, stored, timed


def test_talon_stands_beside_eagle3_by_task() -> None:
    head = {"ar": timed(1, 1), "eagle3": committing(timed(20, 20), 4)}
    head["talon:drafter=eagle3"] = committing(timed(22, 22), 3)
    for rows in head.values():
        rows[1] = replace(rows[1], task="rag")
    run = stored(bench(head))
    text = page({"smollm2_draft_tau_t0": run})
    task = head["ar"][0].task
    assert "| `talon:drafter=eagle3` over `eagle3`, embedded" in text
    assert f"| {task} | 1 | 0.75 | 1.10 |\n| rag | 1 | 0.75 | 1.10 |" in text
    del run["methods"]["talon:drafter=eagle3"]
    assert "| rag |" not in page({"smollm2_draft_tau_t0": run})


def test_talon_stands_beside_eagle3_by_budget_and_by_threshold() -> None:
    methods = {"ar": timed(10), "eagle3": committing(timed(20), 4)}
    for suffix, rate, tau in (("", 25, 3), (":budget=15", 30, 2), (":mu=0.5", 12, 1)):
        methods[f"talon:drafter=eagle3{suffix}"] = committing(timed(rate), tau)
    run = stored(bench(methods), "paper_talon.sh sweeps")
    text = page({"smollm2_talon_sweeps": run})
    assert "| 15 | 2.00 | 3.00 | - | - |\n| 31 | - | - | - | - |" in text
    assert "| 59 | 3.00 | 2.50 | 4.00 | 2.00 |" in text
    assert "| 0.03 | 3.00 | 2.50 |" in text
    assert "| 0.5 | 1.00 | 1.20 |" in text
    assert "[smollm2_talon_sweeps]" in text


def test_every_point_of_talons_tables_is_measured() -> None:
    script = (ROOT / "runs" / "paper_talon.sh").read_text()
    (budgets,) = re.findall(r"for each in (.*); do methods.*:budget=", script)
    (thresholds,) = re.findall(r"for each in (.*); do methods.*:mu=", script)
    assert {*map(int, budgets.split())} == {*BUDGETS} - {DEFAULTS["budget"]}
    assert {*map(float, thresholds.split())} == {*THRESHOLDS} - {DEFAULTS["mu"]}
    assert vars(method(HEAD).policy).items() >= DEFAULTS.items()
    assert vars(method("eagle3").policy)["budget"] == DEFAULTS["budget"]
