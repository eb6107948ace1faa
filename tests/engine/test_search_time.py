"""The time of a search ends where the first draft level is decided on."""

from time import sleep
from typing import Any

import pytest

from draftwood import Engine, Request, method
from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.policies.auto.drafting import DraftLevels
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import StepReport, first_source
from draftwood.runner.attach import attach
from tests.factories.drafted import drafts, target

PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6], [9, 3, 9, 3, 1])
PAUSE = 0.02


def reports(monkeypatch: pytest.MonkeyPatch, spelt: str, **options: Any) -> list[StepReport]:
    """What the tuner is told of the steps of two requests; a draft forward takes a while."""
    found: list[StepReport] = []
    observe, expand = AutoTuner.observe, RolloutDrafter.expand

    def noting(tuner: AutoTuner, report: StepReport) -> Any:
        found.append(report)
        return observe(tuner, report)

    def slow(drafter: RolloutDrafter, *given: Any) -> Any:
        sleep(PAUSE)
        return expand(drafter, *given)

    monkeypatch.setattr(AutoTuner, "observe", noting)
    # A level is asked for whatever it costs.
    monkeypatch.setattr(DraftLevels, "_may_pay", lambda *_: True)
    monkeypatch.setattr(AutoTuner, "levels", lambda _, bids: first_source(bids))
    monkeypatch.setattr(RolloutDrafter, "expand", slow)
    runner = attach(target(), packing=False)
    Engine(runner, method(spelt, **options)).generate([Request(each, 12) for each in PROMPTS])
    runner.detach()
    return found


def test_draft_levels_are_no_part_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports(monkeypatch, "auto", **drafts({"model"}))
    asked = [each for each in found if any(bid and bid.levels for bid in each.bids)]
    assert asked
    for report in asked:
        assert report.search is not None
        assert 0.0 < report.search <= report.times.draft - PAUSE


def test_without_a_draft_model_all_of_it_is_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports(monkeypatch, "auto:neural=")
    assert found
    assert all(report.search is None for report in found)


def test_what_the_tuner_takes_is_time_of_the_next_such_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = AutoTuner.observe

    def slow(tuner: AutoTuner, report: StepReport) -> Any:
        if any(bid is not None for bid in report.bids):
            sleep(PAUSE)
        return honest(tuner, report)

    monkeypatch.setattr(AutoTuner, "observe", slow)
    found = reports(monkeypatch, "auto:neural=")
    searched = [each for each in found if any(bid is not None for bid in each.bids)]
    assert len(searched) > 2
    assert searched[0].times.learn < PAUSE
    assert all(each.times.learn >= PAUSE for each in searched[1:])
