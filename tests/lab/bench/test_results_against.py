"""What the page says where a figure goes against a paper, and where it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftwood.engine.stats import Tally
from draftwood.lab.bench.rows import Row
from tests.lab.bench.kept_runs import module, needs_runs, save, text, timed

pytestmark = needs_runs


def committing(rows: list[Row], tokens_a_step: int) -> list[Row]:
    return [replace(row, tally=Tally(steps=10, committed=10 * tokens_a_step)) for row in rows]


@pytest.mark.parametrize(
    ("ours", "low", "high", "said"),
    [
        (0.9, 1.05, 1.2, "**against the paper: a loss here, a gain there**"),
        (1.02, 1.05, 1.2, "less than in the paper"),
        (1.045, 1.05, 1.2, "as in the paper"),
        (1.1, 1.05, 1.2, "as in the paper"),
        (1.3, 1.05, 1.2, "more than in the paper"),
        (0.8, 0.92, 1.14, "less than in the paper"),
        (None, 1.0, 1.0, "-"),
    ],
)
def test_verdicts(ours: float | None, low: float, high: float, said: str) -> None:
    against = module("against")
    assert against.verdict(ours, against.Printed(low, high, "Table 1")) == said


@pytest.mark.parametrize(
    ("speed", "said"),
    [(8, "**against the paper: a loss here, a gain there**"), (14, "less than in the paper")],
)
def test_dynatree_below_plain_decoding_is_said(tmp_path: Path, speed: float, said: str) -> None:
    methods = {
        "ar": timed(10, 10, set="wikitext2_test"),
        "dynatree": timed(speed, speed, set="wikitext2_test"),
    }
    save(tmp_path / "dynatree_long.json", methods)
    ours = f"{speed / 10:.2f}"
    line = f"| `dynatree` over `ar` | wikitext2_test | {ours} | {ours} | {ours} | 1.65 (Table 1) |"
    assert f"{line} {said} |" in text(tmp_path)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (7, "**Against the paper**: τ of the control is 0.70 of GOOSE's own"),
        (10, "As in the paper, the shape matters more than where the tokens come from: τ of"),
    ],
)
def test_gooses_control_row_is_judged(tmp_path: Path, tokens: int, said: str) -> None:
    methods = {
        "ar": committing(timed(10), 1),
        "goose": committing(timed(10), 10),
        "goose:spine=control": committing(timed(10), tokens),
    }
    save(tmp_path / "tau_ablations.json", methods)
    assert said in text(tmp_path)


@pytest.mark.parametrize(("talon", "said"), [(7, "less than in the paper"), (10, "as in the pa")])
def test_talons_acceptance_below_eagles_is_said(tmp_path: Path, talon: int, said: str) -> None:
    methods = {
        "ar": committing(timed(10), 1),
        "eagle3": committing(timed(10), 10),
        "talon:drafter=eagle3": committing(timed(10), talon),
    }
    save(tmp_path / "draft_tau_t0.json", methods, {name: {"budget": 59} for name in methods})
    taus = f"| 59 | {talon / 10:.2f} | 0.92 to 1.14 (Table 1) | {said}"
    assert taus in text(tmp_path)
