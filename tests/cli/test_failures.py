"""Commands whose request fails in the middle, or whose machine has no memory left."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftwood.cli._demo_prompts import CHATS
from draftwood.engine.phases import Phases
from draftwood.engine.sequence import RunningRequest
from draftwood.errors import DraftwoodError
from draftwood.runner.runner import Runner
from tests.factories.command_line import run

PROMPT = "abc abc abc "
MESSAGE = "the model's logits are not numbers"
AT = 4
"""The call that fails."""


@pytest.fixture
def flags(checkpoint: str) -> tuple[str, ...]:
    return ("--model", checkpoint)


def lines(text: str) -> list[str]:
    """The lines that are not empty: a progress bar of another test may end its own meanwhile."""
    return [line for line in text.splitlines() if line]


def break_at(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception, call: int = AT
) -> None:
    """Let a method raise at its so-manieth call."""
    whole: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def broken(self: object, *args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise error
        return whole(self, *args, **named)

    monkeypatch.setattr(owner, name, broken)


def test_generate_keeps_the_text_of_a_request_that_fails(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("generate", PROMPT, *flags, "--method", "ar", "--max-new-tokens", "12")
    _, whole, _ = run(*asked, "--json")
    with pytest.MonkeyPatch.context() as patch:
        break_at(patch, RunningRequest, "take", DraftwoodError(MESSAGE))
        code, out, err = run(*asked)
    assert code == 1
    assert out.endswith("\n")
    assert out.strip()
    assert json.loads(whole)["text"].startswith(out[:-1])
    assert err.splitlines()[-1] == f"draftwood: {MESSAGE}"
    break_at(monkeypatch, RunningRequest, "take", KeyError("x"))
    code, out, err = run(*asked, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["tokens"] == json.loads(whole)["tokens"][: AT - 1]
    assert (found["finish_reason"], found["error"]) == ("error", "KeyError: 'x'")
    assert lines(err) == ["draftwood: KeyError: 'x'"]
    assert "error" not in json.loads(whole)


@pytest.mark.parametrize("command", ["tree", "demo", "record"])
def test_other_commands_end_in_one_line(
    flags: tuple[str, ...], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc"}\n')
    argv = {
        "tree": (PROMPT, "--method", "ar", "--step", "20"),
        "demo": ("--repeats", "1", "--max-new-tokens", "8"),
        "record": ("--prompts", str(prompts), "--out", str(tmp_path / "out")),
    }[command]
    chats = replace(CHATS, prompts={"code": PROMPT})
    monkeypatch.setattr("draftwood.cli._demo_prompts.CHATS", chats)
    break_at(monkeypatch, RunningRequest, "take", DraftwoodError(MESSAGE), call=2)
    code, _, err = run(command, *argv, *flags)
    assert (code, err.splitlines()[-1]) == (1, f"draftwood: {MESSAGE}")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nBacktrace"),
            "DefaultCPUAllocator: can't allocate memory: 9 bytes",
        ),
        (RuntimeError("CUDA out of memory.\nmore"), "CUDA out of memory."),
    ],
)
def test_no_memory_is_one_line(
    flags: tuple[str, ...], error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_at(monkeypatch, Runner, "prefill", error, call=1)
    code, out, err = run("generate", PROMPT, *flags, "--method", "ar")
    assert (code, out) == (1, "")
    assert lines(err) == [f"draftwood: {message}"]


def test_a_step_that_fails_leaves_the_line_of_the_text(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_at(monkeypatch, Phases, "verify", MemoryError())
    code, out, err = run("generate", PROMPT, *flags, "--method", "ar")
    assert (code, lines(err)) == (1, ["draftwood: not enough memory"])
    assert out.strip()
    assert out.endswith("\n")


def test_other_errors_are_not_hidden(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_at(monkeypatch, Runner, "prefill", RuntimeError("a defect"), call=1)
    with pytest.raises(RuntimeError, match="a defect"):
        run("generate", PROMPT, *flags, "--method", "ar")
