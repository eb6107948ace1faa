"""The demo with the chat model, and with the embedded one where that is missing."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.cli import demo
from draftwood.cli._demo_prompts import CHATS, COMPLETIONS, PromptSet
from draftwood.cli._prompt import encode
from draftwood.files import CACHE_VARIABLE
from tests.factories import tiny_gguf
from tests.factories.command_line import output_of, refused
from tests.factories.tiny_gguf import MODEL

METHODS = [text.partition(":")[0] for text in demo.METHODS]
BRIEF = ("--max-new-tokens", "4", "--repeats", "1")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def chats(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each encoded prompt, whether the chat template was used."""
    found: list[bool] = []

    def noted(*given: Any, chat: bool) -> list[int]:
        found.append(chat)
        return encode(*given, chat=chat)

    monkeypatch.setattr("draftwood.cli.demo.encode", noted)
    return found


def check_tables(out: str, shown: PromptSet) -> None:
    """Every prompt with its table of methods, all of which give the same tokens."""
    for name, text in shown.prompts.items():
        assert f" {name} ─" in out
        assert text in out
    lines = [line.split() for line in out.splitlines()]
    rows = [words for words in lines if len(words) == 6 and words[0] in METHODS]
    assert [row[0] for row in rows] == METHODS * len(shown.prompts)
    assert all(row[2] == "✓" for row in rows)
    assert [words[0] for words in lines if len(words) == 4 and words[0] in METHODS] == METHODS


def test_with_its_package_the_chat_model_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chats: list[bool]
) -> None:
    tiny_gguf.install(tmp_path / "site", monkeypatch)
    out = output_of("demo", *BRIEF)
    assert f"model: smollm2 ({MODEL.about}), torch.float32, cpu, greedy" in out
    check_tables(out, CHATS)
    assert chats == [True] * 4
    assert "embedded" not in out
    assert "note:" not in out


def test_without_it_the_embedded_model_continues(
    monkeypatch: pytest.MonkeyPatch, chats: list[bool]
) -> None:
    tiny_gguf.uninstall(monkeypatch)
    out = output_of("demo", *BRIEF)
    [why, note, model] = out.splitlines()[:3]
    assert why.startswith("the embedded model runs, because the model 'smollm2' comes with")
    assert why.endswith(MODEL.install)
    assert "loop" in note
    assert model.startswith("model: embedded, torch.float32")
    check_tables(out, COMPLETIONS)
    assert chats == [False] * 3


def test_the_embedded_model_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "METHODS", ("ar", "auto"))
    out = output_of("demo", *BRIEF, "--model", "embedded")
    assert out.startswith("note: most outputs of this small model loop")


def test_the_chat_model_asked_for_but_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf.uninstall(monkeypatch)
    monkeypatch.setattr("draftwood.costs.busy.warning", lambda _: None)
    assert MODEL.install in refused("demo", "--model", "smollm2")


def test_a_difference_in_tokens_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf.install(tmp_path / "site", monkeypatch)
    measure = demo._measure

    def wrong(*given: Any) -> list[demo.Result]:
        first, *rest, last = measure(*given)
        return [first, *rest, demo.Result(replace(last.completion, tokens=()), last.times)]

    monkeypatch.setattr(demo, "_measure", wrong)
    monkeypatch.setattr(demo, "METHODS", ("ar", "auto"))
    assert output_of("demo", *BRIEF).count("✗") == len(CHATS.prompts)


def test_the_last_table_adds_tokens_and_times() -> None:
    def result(tokens: int, *times: float) -> demo.Result:
        completion: Any = SimpleNamespace(tokens=range(tokens + 1))
        return demo.Result(completion, times)

    plain = [result(30, 3.0, 2.0, 9.0), result(10, 1.0), result(-1, 0.0)]
    fast = [result(30, 1.0), result(10, 1.0)]
    assert demo._speed(plain, plain) == ("10", "1.00x")
    assert demo._speed(fast, plain) == ("20", "2.00x")
    assert demo._speed(fast, [result(0, 0.0)]) == ("20", "-")
