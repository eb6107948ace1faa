"""The doctor on the command line: what it prints, refuses and returns."""

import json
from pathlib import Path
from typing import Any

import pytest

import draftwood
from draftwood.files import CACHE_VARIABLE
from tests.factories.command_line import output_of, refused, run

MACHINE = ["versions", "device", "threads", "kernels", "other load", "free memory", "cache"]
MODEL = ["weights", "trees", "requests", "drafts", "step costs", "speed-up", "lossless", "further"]
BRIEF = ("--max-new-tokens", "4")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def findings(*argv: str) -> dict[str, Any]:
    found = json.loads(output_of("doctor", *argv, "--json").splitlines()[-1])["findings"]
    return {each["name"]: each for each in found}


def test_without_a_model_the_machine_is_looked_at() -> None:
    out = output_of("doctor")
    names = [line[5:20].strip() for line in out.splitlines() if line[:5].strip()]
    assert names == MACHINE


def test_with_a_model_all_is_looked_at(checkpoint: str) -> None:
    found = findings(checkpoint, *BRIEF)
    assert list(found) == MACHINE + MODEL
    assert found["trees"]["state"] == "ok"
    assert found["lossless"]["text"].startswith("4 of 4 answers")
    assert found["step costs"]["advice"][0]["command"] == f"draftwood tune --model {checkpoint}"
    assert any("bfloat16" in each["command"] for each in found["further"]["advice"])


def test_commands_keep_the_number_format_that_was_asked_for(checkpoint: str) -> None:
    found = findings(checkpoint, *BRIEF, "--dtype", "bfloat16")
    command = f"draftwood tune --model {checkpoint} --dtype bfloat16"
    assert found["step costs"]["advice"][0]["command"] == command
    plain = findings(checkpoint, *BRIEF, "--dtype", "float32")
    commands = [each["command"] for each in plain["further"]["advice"]]
    assert f"draftwood doctor {checkpoint} --dtype bfloat16" in commands


def test_advice_stands_below_its_finding(checkpoint: str) -> None:
    out = output_of("doctor", checkpoint, *BRIEF, "--draft", checkpoint)
    lines = out.splitlines()
    [costs] = [i for i, line in enumerate(lines) if "step costs" in line]
    assert any(f"draftwood tune --model {checkpoint}" in line for line in lines[costs : costs + 6])
    [drafts] = [line for line in lines if line[5:].startswith("drafts")]
    assert drafts.startswith("ok")


def test_a_model_that_is_missing_fails_after_the_machine(tmp_path: Path) -> None:
    code, out, err = run("doctor", str(tmp_path / "none"))
    assert (code, err) == (1, "")
    last = out[out.index("FAIL") :]
    assert "no such directory" in " ".join(last.split())


def test_a_model_that_cannot_branch_fails(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(_: Any) -> None:
        raise draftwood.DraftwoodError("its trees are wrong")

    monkeypatch.setattr("draftwood.lab.doctor.model.attach", refusing)
    code, out, _ = run("doctor", checkpoint)
    assert code == 1
    assert "refused: its trees are wrong" in out
    assert "speed-up" not in out


def test_a_model_that_does_not_fit_is_not_loaded(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.lab.free_memory.free_memory", lambda _: 1000)
    monkeypatch.setattr("draftwood.cli._options.ModelOptions.load", None)
    code, out, _ = run("doctor", checkpoint)
    assert code == 1
    assert "only 1 KB are free" in out


def test_a_draft_without_a_model_is_refused() -> None:
    assert "--draft is for a MODEL" in refused("doctor", "--draft", "x")
