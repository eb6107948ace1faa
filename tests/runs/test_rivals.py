"""The comparison of auto with the rules of other engines."""

import json
import sys
from pathlib import Path

import pytest

from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.file import write
from draftwood.lab.replay.recording import RecordedPrompt, Text
from draftwood.lab.replay.rows import PathTrie, RankedRows
from draftwood.methods import method
from runs.smollm2.rivals import (
    AUTOS,
    RIVALS,
    compared,
    in_random_order,
    main,
    spelt,
    step_costs,
)
from tests.lab.replay.live_and_replayed import stage

SCRIPT = Path(__file__).parents[2] / "runs" / "smollm2" / "rivals.py"


def test_the_ratio_is_of_tokens_per_second() -> None:
    auto = {"a": [1.0, 3.0] * 8, "b": [2.0]}
    rival = {"a": [2.0, 3.0] * 8, "b": [5.0]}
    found = compared(auto, rival)
    assert found["sets"]["a"]["value"] == pytest.approx(5 / 4)
    assert 1.0 < found["sets"]["a"]["low"] < 5 / 4 < found["sets"]["a"]["high"] < 2.0
    assert found["sets"]["b"] == {"value": 2.5, "low": None, "high": None}
    assert found["mean"] == pytest.approx((1.25 + 2.5) / 2)


@pytest.mark.parametrize("head", [None, "smollm2-eagle3"])
def test_the_methods_exist(head: str | None) -> None:
    names = spelt((*AUTOS, *RIVALS), head)
    assert len(names) == (len(AUTOS) + len(RIVALS) if head else 5)
    for name in names:
        method(name)


def test_costs_are_of_the_machine_and_of_gpus() -> None:
    found = step_costs(SCRIPT.with_name("step_costs.json"), "h100", "1b,8b")
    assert list(found) == ["own costs", "h100, 1b", "h100, 8b"]
    assert all("draft" in each.drafters for each in found.values())
    assert list(step_costs(SCRIPT.with_name("step_costs.json"), "", "1b")) == ["own costs"]


def test_prompts_of_one_context_are_decoded_together_once() -> None:
    def prompt(name: str, *contexts: list[int]) -> RecordedPrompt:
        texts = [Text(len(each), 1, PathTrie([*each, 9]), RankedRows(1)) for each in contexts]
        return RecordedPrompt(name, "", "", 0, texts)

    different = [prompt(str(i), [i]) for i in range(20)]
    prompts = [*different[:10], prompt("same", [30], [3]), *different[10:]]
    found = [each.id for each in in_random_order(prompts)]
    assert sorted(found) == sorted(each.id for each in different)
    assert found != [each.id for each in different]
    assert found == [each.id for each in in_random_order(prompts)]


@pytest.mark.slow
def test_a_recording_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = stage("embedded")
    prompts = [
        Prompt(f"{kind}{i}", "code", kind, (f"def {kind}_{i}(a, b):\n    return",))
        for kind in ("add", "sub")
        for i in range(2)
    ]
    path = tmp_path / "tiny.rec"
    write(path, at.record(prompts, max_new_tokens=12))
    words = [str(path), "--model", "embedded", "--head", "embedded-eagle3"]
    words += ["--gpus", "h100", "--shapes", "1b", "--batches", "1,4", "--queues", "2"]
    monkeypatch.setattr(sys, "argv", ["rivals.py", *words])
    main()
    printed = json.loads(capsys.readouterr().out)
    found, queues = printed["rivals"]["tiny"], printed["queues"]["tiny"]
    assert list(found) == list(queues) == ["own costs", "h100, 1b"]
    for by_rival in queues.values():
        assert len(by_rival) == len(RIVALS)
        for by_auto in by_rival.values():
            assert len(by_auto) == len(AUTOS)
            assert all(list(each) == ["2"] and each["2"] > 0.0 for each in by_auto.values())
    for by_rival in found.values():
        assert len(by_rival) == len(RIVALS)
        for by_auto in by_rival.values():
            assert len(by_auto) == len(AUTOS)
            for by_batch in by_auto.values():
                assert list(by_batch) == ["1", "4"]
                for each in by_batch.values():
                    assert list(each["sets"]) == ["add", "sub"]
                    assert each["mean"] > 0.0
                    for ratio in each["sets"].values():
                        assert ratio["value"] > 0.0
