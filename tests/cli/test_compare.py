"""``generate --compare``: speeds side by side, and whether the tokens agree."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.cli._compare import Comparison
from draftwood.engine.engine import Engine
from draftwood.lab.bench.margins import Margin
from tests.factories.command_line import output_of, run

PROMPT = ("generate", "abc abc abc ", "--max-new-tokens", "12", "--compare")


def completion(tokens: list[int], seconds: float = 0.01) -> Any:
    return SimpleNamespace(tokens=tuple(tokens), tpot=seconds)


def test_the_tokens_of_plain_decoding_are_said_to_be_the_same(checkpoint: str) -> None:
    code, _, err = run(*PROMPT, "--model", checkpoint)
    assert code == 0
    assert "[plain decoding: 12 tokens, " in err
    assert "same tokens]" in err
    found = json.loads(output_of(*PROMPT, "--model", checkpoint, "--json").splitlines()[-1])
    compared = found["compare"]
    assert compared["same_tokens"] is True
    assert compared["first_difference"] is None
    assert compared["speed_up"] > 0
    assert compared["plain_tokens_per_second"] > 0
    assert "compare" not in json.loads(
        output_of(*PROMPT[:-1], "--model", checkpoint, "--json").splitlines()[-1]
    )


def test_a_fault_is_told_from_rounding(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain decoding that says something else: its logits are far apart."""
    monkeypatch.setattr(Engine, "generate", lambda *_: [stand_in])
    stand_in: Any = completion([1, 1, 1])
    stand_in.checked = lambda: stand_in
    _, _, err = run(*PROMPT, "--model", checkpoint)
    assert "tokens differ from number 1 on: NOT a near tie (logits " in err


def test_differences_in_words() -> None:
    plain = completion([1, 2, 3, 4], 0.02)
    same = Comparison(completion([1, 2, 3, 4]), plain, exact=True)
    assert same.speed_up == 2.0
    assert same.lines() == ["[plain decoding: 4 tokens, 50.00 tok/s; speed-up 2.00x, same tokens]"]
    other = Comparison(completion([1, 2, 9, 4]), plain, exact=True, margin=Margin(1e-7, 1e-5))
    assert other.first_difference == 2
    assert other.differing == (3, 9)
    assert "from number 3 on: a near tie (logits 1e-07 apart" in other.lines()[0]
    assert other.document()["near_tie"] is True
    sampled = Comparison(completion([5]), plain, exact=False)
    assert "other tokens of the same distribution" in sampled.lines()[0]
    longer = Comparison(completion([1, 2, 3, 4, 5]), plain, exact=True)
    assert longer.first_difference == 4
    assert longer.differing is None
    assert longer.lines()[0].endswith("tokens differ from number 5 on]")


def test_a_single_token_has_no_speed() -> None:
    one = completion([1], math.nan)
    found = Comparison(one, one, exact=True)
    assert found.speed_up is None
    assert found.lines() == ["[plain decoding: 1 tokens, not timed, same tokens]"]
    assert found.document()["plain_tokens_per_second"] == 0


def test_a_looping_text_is_marked() -> None:
    looping = completion([1, 2] * 20)
    found = Comparison(looping, looping, exact=True)
    assert "outputs loop" in found.lines()[1]
