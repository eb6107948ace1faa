"""What the doctor says of a model before it decodes."""

from dataclasses import replace
from typing import Any

import draftwood
from draftwood.engine.engine import Engine
from draftwood.lab.doctor import model
from draftwood.methods import method
from draftwood.runner.attach import attach
from tests.factories.tiny_llama import tiny_llama


def test_a_model_that_cannot_branch_is_refused_with_the_reason(checkpoint: str) -> None:
    good = draftwood.load(checkpoint)
    runner, finding = model.attached(good)
    assert runner is not None
    assert finding.state == "ok"
    draftwood.detach(good.model)
    good.model.train()
    runner, finding = model.attached(good)
    assert runner is None
    assert finding.state == "failed"
    assert "eval" in finding.text
    assert all(each.command for each in finding.advice)


def test_room_for_requests() -> None:
    runner = attach(tiny_llama())
    token = runner.info.token_bytes
    found = model.room_finding(runner, 1024 * token * 10, 65)
    assert "room for 8 requests" in found.text, "rows that grow take a quarter more"
    assert "room" not in model.room_finding(runner, None, 65).text
    # As much again for states, and for the nodes of a tree.
    half = 1024 * token * 5 // 4
    runner.info = replace(runner.info, slot_bytes=half, node_bytes=half // 64)
    found = model.room_finding(runner, 1024 * token * 10, 64)
    assert "room for 2 requests" in found.text


def test_what_drafts(checkpoint: str) -> None:
    def drafts(name: str, **settings: Any) -> Any:
        loaded = draftwood.load(name)
        engine = Engine(loaded.model, method("auto", **settings), loaded.tokenizer)
        return model.drafts_finding(engine, name)

    shipped = drafts("embedded")
    assert shipped.state == "ok"
    assert "calibration" in shipped.text
    unknown = drafts(checkpoint)
    assert unknown.state == "note"
    assert f"--model {checkpoint}" in unknown.advice[0].command
    assert drafts(checkpoint, draft=checkpoint).state == "ok"
