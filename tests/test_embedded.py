"""The models that ship with the package: small, documented, and decoded losslessly."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from draftwood import models
from draftwood.cli._demo_prompts import COMPLETIONS
from draftwood.cli._prompt import encode
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.methods import method, recipes
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.complete_methods import complete

NAMES = sorted(models.EMBEDDED)


@pytest.fixture(scope="module")
def loaded() -> models.Loaded:
    return models.load("embedded")


@pytest.fixture(scope="module")
def runner(loaded: models.Loaded) -> Runner:
    return attach(loaded.model)


@pytest.fixture(scope="module")
def host(loaded: models.Loaded, runner: Runner) -> ModelHost:
    return ModelHost(runner, loaded.tokenizer)


def folder(name: str) -> Path:
    return Path(models.location(name))


def test_the_head_is_small_and_documented() -> None:
    head = folder("embedded-eagle3")
    assert sum(file.stat().st_size for file in head.iterdir()) <= 5e6
    record = json.loads((head / "provenance.json").read_text())
    assert record["finished"]
    target = load_file(folder("embedded") / "model.safetensors")
    assert load_file(head / "model.safetensors").keys().isdisjoint(target)


def test_they_are_small() -> None:
    size = sum(file.stat().st_size for name in NAMES for file in folder(name).iterdir())
    assert size <= 30e6


@pytest.mark.parametrize("name", NAMES)
def test_they_are_documented(name: str) -> None:
    record = json.loads((folder(name) / "provenance.json").read_text())
    assert record["finished"]
    assert 0.99 < record["trained"]["tokens"] / record["recipe"]["tokens"] <= 1
    assert set(record["held_out"]) == set(record["data"]["files"])
    for domain, facts in record["held_out"].items():
        assert 0 < facts["nats_per_token"] < 8.3, "worse than guessing among 4,096 tokens"
        assert 0 <= facts["greedy_loops"] <= 1
        assert record["data"]["origin"][domain]["licences"]
    config = json.loads((folder(name) / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["dtype"] == "bfloat16"
    assert config["max_position_embeddings"] == 4096


def test_they_share_a_tokenizer() -> None:
    target, draft = ((folder(name) / "tokenizer.json").read_text() for name in NAMES)
    assert target == draft


def test_loaded_in_float32_on_a_cpu(loaded: models.Loaded) -> None:
    assert loaded.model.dtype == torch.float32
    assert loaded.tokenizer.chat_template
    assert loaded.eos == frozenset({loaded.tokenizer.eos_token_id})


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        ("code", 12),
        *(pytest.param(p, 64, marks=pytest.mark.slow) for p in sorted(COMPLETIONS.prompts)),
    ],
)
def test_every_method_equals_generate(
    loaded: models.Loaded, runner: Runner, host: ModelHost, prompt: str, count: int
) -> None:
    ids = encode(loaded.tokenizer, COMPLETIONS.prompts[prompt], chat=False)
    untouched: Any = models.load("embedded").model
    expected = untouched.generate(
        torch.tensor([ids]), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    plain = tuple(expected[0, len(ids) :].tolist())
    for name in recipes():
        own = method(name)
        if {"head", "draft"} & set(own.missing) or own.in_target:
            continue  # an EAGLE-3 head and an ordinary draft model come with the package
        engine = Engine(runner, method(complete(name)), host=host)
        found = engine.generate([Request(ids, count, eos=loaded.eos)])[0]
        assert found.tokens == plain, name
