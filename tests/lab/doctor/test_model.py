"""What the doctor says of a model before it decodes."""

from pathlib import Path
from typing import Any

import pytest

import draftwood
from draftwood.engine.engine import Engine
from draftwood.lab.doctor import model
from draftwood.lab.doctor.model import Weights
from draftwood.methods import method
from draftwood.runner.attach import attach
from tests.factories.tiny_llama import tiny_llama


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_weights_are_counted_before_they_are_loaded(dtype: str, size: int) -> None:
    loaded = draftwood.load("embedded")
    parameters = sum(each.numel() for each in loaded.model.parameters())
    assert model.weights_of("embedded", dtype) == Weights(parameters, parameters * size)


def test_weights_of_what_is_no_model_are_unknown(tmp_path: Path) -> None:
    assert model.weights_of(str(tmp_path), "auto") is None


def test_weights_must_fit() -> None:
    weights = Weights(135_000_000, 540_000_000)
    assert model.fit_finding(weights, None).state == "ok"
    assert model.fit_finding(weights, 540_000_000).state == "ok"
    found = model.fit_finding(weights, 500_000_000)
    assert found.state == "failed"
    assert "only 500 MB are free" in found.text
    assert "--dtype" in found.advice[0].command


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


def test_room_for_requests() -> None:
    runner = attach(tiny_llama())
    token = runner.info.token_bytes
    found = model.room_finding(runner, 1024 * token * 10)
    assert "room for 8 requests" in found.text, "rows that grow take a quarter more"
    assert "room" not in model.room_finding(runner, None).text


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
