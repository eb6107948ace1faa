"""What the doctor says of speeds."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import draftwood
from draftwood.costs.curve import Curve, StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.doctor.speed import (
    Timed,
    costs_finding,
    speed_finding,
    timed,
    tokens_finding,
)


def costs(*base: float) -> StepCosts:
    return StepCosts(Curve((1, 5, 17, 61), base))


def test_what_pays_for_a_tree() -> None:
    cheap = costs_finding(costs(0.010, 0.010, 0.012, 0.025), "M")
    assert cheap.state == "ok"
    assert "a plain step takes 10 ms" in cheap.text
    assert "with 4 drafted nodes 1.00x, which 0.00 accepted ones repay" in cheap.text
    assert "with 60 drafted nodes 2.50x, which 1.50 accepted ones repay" in cheap.text
    dear = costs_finding(costs(0.010, 0.015, 0.021, 0.05), "M")
    assert dear.state == "note"
    assert dear.advice[0].command == "draftwood tune --model M"


def completion(tokens: int, seconds: float, steps: int, first: int = 0) -> Any:
    tally = SimpleNamespace(steps=steps, committed=tokens - 1)
    return SimpleNamespace(tokens=tuple(range(first, first + tokens)), tpot=seconds, tally=tally)


def pair(speed_up: float, first: int = 0) -> Timed:
    return Timed(completion(30, 0.02, 30), completion(30, 0.02 / speed_up, 10, first))


def test_speeds_are_medians_with_their_range() -> None:
    found = speed_finding([pair(1.2), pair(1.5), pair(3.0)], "auto", "M")
    assert found.state == "ok"
    assert "auto 1.50x plain decoding's 50 tok/s" in found.text
    assert "median of 3 prompts, 1.20-3.00), 2.90 tokens a step" in found.text
    assert "8-grams" not in found.text
    assert speed_finding([pair(1.0)], "auto", "M").state == "note"
    assert speed_finding([], "auto", "M").state == "note"


def test_a_loss_says_what_shows_its_cause() -> None:
    found = speed_finding([pair(0.8)], "auto", "M")
    assert found.state == "warning"
    assert "--explain" in found.advice[0].command


def test_loops_are_told() -> None:
    looping = pair(2.0)
    same: Any = completion(40, 0.02, 10)
    same.tokens = (1, 2) * 20
    found = speed_finding([replace(looping, plain=same)], "auto", "M")
    assert "flatters" in found.text
    assert found.state == "note"


def test_other_tokens_are_a_warning_in_float32_and_a_note_elsewhere() -> None:
    assert tokens_finding([pair(2.0)], "M", exact=True).state == "ok"
    wrong = [pair(2.0), pair(2.0, first=1)]
    assert tokens_finding(wrong, "M", exact=True).state == "warning"
    found = tokens_finding(wrong, "M", exact=False)
    assert found.state == "note"
    assert found.text.startswith("1 of 2 answers")


def test_both_engines_answer_every_request_after_a_first_one() -> None:
    loaded = draftwood.load("embedded")
    plain, fast = (Engine(loaded.model, each, loaded.tokenizer) for each in ("ar", "pld"))
    asked: list[int] = []
    generate = plain.generate

    def noted(requests: Any) -> Any:
        asked.extend(request.max_new_tokens for request in requests)
        return generate(requests)

    plain.generate = noted  # type: ignore[method-assign]
    found = timed(plain, fast, [Request("Once", 8), Request("Once", 1), Request("The ship", 9)])
    assert asked == [16, 8, 1, 9]
    assert len(found) == 2, "a single token has no time per token"
    assert all(each.same and each.speed_up > 0 for each in found)
    asked.clear()
    assert len(timed(plain, fast, [Request("Once", 8), Request("Once", 9)], seconds=0)) == 1
    assert asked == [16, 8]
