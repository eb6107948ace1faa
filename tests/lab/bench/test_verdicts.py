"""Differences of tokens from end to end: rounding is no fault, and a wrong token is one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood import models
from draftwood.engine.request import Request
from draftwood.lab.bench.contenders import OwnChoice, Stage
from draftwood.lab.bench.measure import Answer, Contender, Decode
from draftwood.lab.bench.verdicts import differences, verdict
from draftwood.sampling.noise import RequestNoise
from tests.factories.bench_command import bench as run_bench
from tests.factories.bench_command import two_sets
from tests.lab.bench.documents import document, method, metrics


@pytest.mark.parametrize(
    ("same", "rounding", "faults", "said"),
    [
        (8, 0, 0, "8 of 8 the same"),
        (4, 4, 0, "4 of 8 the same; 4 differ by float16 rounding"),
        (7, 0, 0, "7 of 8 the same; 1 differs, not examined"),
    ],
)
def test_a_verdict_says_how_many_and_why(same: int, rounding: int, faults: int, said: str) -> None:
    counts = {"rounding_prompts": rounding, "fault_prompts": faults}
    x = method(metrics(identical=same, compared=8), **counts)
    assert verdict(document(methods={"x": x}).methods["x"], "float16") == said


def test_a_fault_is_the_example_if_there_is_one() -> None:
    tie = {"run_seed": 0, "repeat": 0, "turn": 0, "position": 7, "expected": 5, "found": 9}
    near = {**tie, "id": "c/1", "gap": 0.02, "bound": 0.3, "near_tie": True}
    unknown = {**near, "id": "c/0", "found": None, "gap": None, "bound": None, "near_tie": None}
    wrong = {**near, "id": "c/2", "gap": None, "near_tie": False}
    counts = {"identical": 1, "compared": 4, "rounding_prompts": 1, "fault_prompts": 1}
    x = method(metrics(), **counts, divergences=[unknown, near, wrong])
    found = document(methods={"x": x, "y": method(metrics())})
    found = replace(found, provenance={"model": {"dtype": "bfloat16"}})
    assert differences(found) == [
        "x: 1 of 4 the same; 1 differs by bfloat16 rounding; 1 differs by more than rounding: a "
        "fault; 1 differs, not examined. First in c/2, turn 0, token 7: 9 instead of 5, out of "
        "reach (rounding moves 0.3)"
    ]


@dataclass(frozen=True)
class Wrong:
    """A contender whose answers have as third token the one that plain decoding picks last."""

    right: Contender
    model: Any

    def begin(self, batch: int) -> Decode:
        decode = self.right.begin(batch)
        return lambda requests: [
            self.spoilt(request, answer)
            for request, answer in zip(requests, decode(requests), strict=True)
        ]

    def spoilt(self, request: Request, answer: Answer) -> Answer:
        tokens = list(answer.completion.tokens)
        before = torch.tensor([[*request.prompt, *tokens[:2]]])
        with torch.inference_mode():
            logits = self.model(before).logits[0, -1].float()
        if request.sampling.temperature:
            noise = RequestNoise(request.sampling.seed, before.shape[1] - 1)
            logits = noise.gumbel_keys(0, (logits / request.sampling.temperature).softmax(-1))
        tokens[2] = int(logits.argmin())
        return replace(answer, completion=replace(answer.completion, tokens=tuple(tokens)))


@pytest.mark.parametrize(
    ("dtype", "temperature"),
    [
        ("bfloat16", "1"),
        pytest.param("bfloat16", "0", marks=pytest.mark.slow),
        pytest.param("float32", "0", marks=pytest.mark.slow),
        pytest.param("float32", "1", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_token_is_a_fault_in_every_dtype(
    tmp_path: Path,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    temperature: str,
) -> None:
    model = models.load(checkpoint, dtype=dtype).model
    enter = OwnChoice.enter

    def spoiling(choice: OwnChoice, stage: Stage) -> Contender:
        right = enter(choice, stage)
        return Wrong(right, model) if choice.name == "pld" else right

    monkeypatch.setattr(OwnChoice, "enter", spoiling)
    found, err = measured(tmp_path, checkpoint, "pld", dtype, temperature)
    entry = found["methods"]["pld"]
    assert (entry["identical"], entry["compared"]) == (0, 3)
    assert (entry["near_ties"], entry["rounding_prompts"], entry["fault_prompts"]) == (0, 0, 3)
    assert [row["identical"] for row in entry["rows"]] == [False] * 3
    for divergence in entry["divergences"]:
        assert divergence["near_tie"] is False
        assert divergence["position"] == 2
        assert divergence["gap"] > divergence["bound"]
    assert "3 differ by more than rounding: a fault" in err
    assert "3 differ by more than rounding: a fault" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize("temperature", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_what_our_methods_do_in_bfloat16_is_rounding_at_most(
    tmp_path: Path, checkpoint: str, temperature: str
) -> None:
    found, err = measured(tmp_path, checkpoint, "goose:budget=9", "bfloat16", temperature)
    entry = found["methods"]["goose:budget=9"]
    assert entry["fault_prompts"] == 0
    assert entry["identical"] + entry["rounding_prompts"] == entry["compared"] == 3
    assert "fault" not in err


def measured(
    place: Path, model: str, method: str, dtype: str, temperature: str
) -> tuple[dict[str, Any], str]:
    argv: Sequence[str] = [
        *("--prompts", two_sets(place), "--model", model, "--methods", method),
        *("--dtype", dtype, "--temperature", temperature),
        *("--json", str(place / "x.json"), "--html", str(place / "x.html")),
    ]
    code, _, err = run_bench(*argv)
    assert code == 0, err
    found: dict[str, Any] = json.loads((place / "x.json").read_text())
    return found, " ".join(err.split())
