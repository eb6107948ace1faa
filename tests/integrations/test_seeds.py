"""Seeds determine the tokens of ``generate`` and of the command line, also with a draft model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import set_seed

import draftwood
from draftwood.cli.generate import generate as command
from tests.factories.tiny_llama import save_tiny, tiny_llama


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))


def test_a_seed_determines_the_samples_of_generate() -> None:
    model: Any = tiny_llama()
    draft = tiny_llama(seed=1, layers=1)
    ids = torch.tensor([[5, 9, 2, 7, 5, 9, 2]] * 3)
    settings = {"max_new_tokens": 24, "do_sample": True, "temperature": 0.9}

    def sampled(method: Any, seed: int) -> list[list[int]]:
        set_seed(seed)
        found: list[list[int]] = model.generate(ids, **settings, custom_generate=method).tolist()
        return found

    auto = draftwood.auto(draft=draft)
    first = sampled(auto, 3)
    assert len({tuple(row) for row in first}) == 3, "each row has a seed of its own"
    assert sampled(auto, 3) == first, "though the engine knows more of its costs by now"
    assert sampled(draftwood.ar(), 3) == first
    assert sampled(draftwood.auto(), 3) == first
    assert sampled(auto, 4) != first
    draftwood.detach(model)


def test_a_seed_determines_the_samples_of_the_command_line(tmp_path: Path) -> None:
    target = str(save_tiny(tmp_path / "target"))
    draft = str(save_tiny(tmp_path / "draft"))
    tiny_llama(seed=1, layers=1).save_pretrained(draft)

    def sampled(*argv: str) -> str:
        flags = ["--model", target, "--temperature", "1", "--max-new-tokens", "16", "--json"]
        outcome = CliRunner().invoke(command, ["abc abc", *flags, *argv], catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.output
        text: str = json.loads(outcome.stdout)["text"]
        return text

    first = sampled("--draft", draft, "--seed", "5")
    assert sampled("--draft", draft, "--seed", "5") == first
    assert sampled("--method", "ar", "--seed", "5") == first
    assert sampled("--draft", draft, "--seed", "6") != first
