"""A killed or stopped run is resumed, and ends with the figures of an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood import models
from draftwood.lab.bench import generating, runs
from draftwood.lab.bench.journal import Journal
from tests.factories.command_line import refused, run

ROOT = Path(__file__).parents[3]
METHODS = "pld,goose:budget=9,hf"
TIMES = {
    "tokens_per_second",
    "speedup_vs_ar",
    "speedup_vs_hf",
    "ttft_ms",
    "tpot_ms",
    "ttft",
    "tpot",
    "seconds",
    "group_seconds",
    "phases",
    "time_share",
    "overhead_percent",
    "overhead_ms_per_step",
    "predicted_speedup",
    "predicted_speedup_with_verification",
    "peak_memory_mb",
    "other_processes",
    "command",
    "date",
    "load_average",
    "resumed",
}
KILLED = """
import os, signal, sys
from draftwood import cli
from draftwood.lab.bench import session
honest, started = session.Session._quote, 0
def killing(self, *answer):
    global started
    started += 1
    if started == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, *answer)
session.Session._quote = killing
cli.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, checkpoint: str) -> list[str]:
    """Four methods, two prompts, two seeds: sixteen jobs, without their output."""
    place = tmp_path_factory.mktemp("prompts") / "set.jsonl"
    items = [
        {"id": "c", "task": "code", "prompt": "abc1 abc1 "},
        {"id": "m", "task": "chat", "turns": ["Say abc.", "Again."]},
    ]
    place.write_text("\n".join(map(json.dumps, items)))
    argv = ["bench", "--prompts", str(place), "--model", checkpoint, "--methods", METHODS]
    more = ["--seeds", "0,3", "--temperature", "0.7", "--max-new-tokens", "16"]
    return [*argv, *more, "--threads", str(torch.get_num_threads())]


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, command: list[str]
) -> tuple[dict[str, Any], bytes]:
    """The document of a run that nobody disturbed, and its journal just before it was removed."""
    out = tmp_path_factory.mktemp("whole") / "x.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "remove", lambda self: None)
        code, _, _ = run(*command, "--json", str(out))
    assert code == 0
    return json.loads(out.read_text()), out.with_name("x.journal.jsonl").read_bytes()


def timeless(value: Any) -> Any:
    """All that two runs of the same settings must agree on."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def jobs(path: Path) -> list[list[Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["job"] for line in lines if "job" in line]


def test_what_is_compared_is_not_nothing(whole: tuple[dict[str, Any], bytes]) -> None:
    kept = timeless(whole[0])
    goose = kept["methods"]["goose:budget=9"]
    assert goose["acceptance_by_rank"]
    assert goose["mean_acceptance_length"]["value"] > 1.0
    assert sum(row["accepted"] for row in goose["rows"]) > 0
    assert set(goose["by_seed"]) == {"0", "3"}
    assert len(kept["excerpts"]) == 6


@pytest.mark.slow
def test_a_killed_run_goes_on_to_what_it_would_have_come_to(
    tmp_path: Path, command: list[str], whole: tuple[dict[str, Any], bytes]
) -> None:
    out, journal = tmp_path / "x.json", tmp_path / "x.journal.jsonl"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *command, "--json", str(out)],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    assert len(jobs(journal)) == 5
    journal.write_bytes(journal.read_bytes() + b'{"job": ["hf", 0, 0')
    code, _, said = run(*command, "--json", str(out), "--resume")
    assert code == 0, said
    assert not journal.exists()
    found = json.loads(out.read_text())
    assert found["complete"] is True
    assert timeless(found) == timeless(whole[0])
    parts = found["provenance"]["resumed"]
    assert [set(part) for part in parts] == [{"date", "load_average"}] * 2
    assert parts[0]["date"] <= parts[1]["date"] == found["provenance"]["date"]


@pytest.mark.slow
def test_sigterm_keeps_what_has_ended_and_the_run_goes_on(
    tmp_path: Path,
    command: list[str],
    whole: tuple[dict[str, Any], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, calls = generating.Generate.decode, 0

    def stopping(self: generating.Generate, requests: Sequence[Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the warm-up asks for the two turns of the dialogue
            os.kill(os.getpid(), signal.SIGTERM)
        return honest(self, requests)

    monkeypatch.setattr(generating.Generate, "decode", stopping)
    before = signal.getsignal(signal.SIGTERM)
    out = tmp_path / "x.json"
    code, _, _ = run(*command, "--json", str(out))
    assert code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert len(found["methods"]["hf"]["rows"]) == 1
    done = len(jobs(tmp_path / "x.journal.jsonl"))
    assert done == sum(len(entry["rows"]) for entry in found["methods"].values())
    code, _, said = run(*command, "--json", str(out))
    assert code == 2
    assert "add --resume to go on with it, or delete the file" in said
    code, _, said = run(*command, "--json", str(out), "--resume")
    assert code == 0, said
    assert timeless(json.loads(out.read_text())) == timeless(whole[0])


@pytest.mark.slow
def test_only_methods_with_something_left_warm_up(
    tmp_path: Path,
    command: list[str],
    whole: tuple[dict[str, Any], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, journal = tmp_path / "x.json", tmp_path / "x.journal.jsonl"
    seen: list[list[str]] = []
    honest = runs.warm_up

    def watched(contenders: Any, *rest: Any) -> None:
        seen.append(sorted(contenders))
        honest(contenders, *rest)

    monkeypatch.setattr("draftwood.lab.bench.session.warm_up", watched)
    lines = whole[1].splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"job": ["pld"')))
    assert len(jobs(journal)) == 12
    assert run(*command, "--json", str(out), "--resume")[0] == 0
    journal.write_bytes(whole[1])  # killed between the last job and the document
    assert run(*command, "--json", str(out), "--resume")[0] == 0
    assert seen == [["pld"], []]
    assert timeless(json.loads(out.read_text())) == timeless(whole[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--max-new-tokens", "8"], "settings.max_new_tokens was 16 and is 8"),
        (["--seeds", "0"], "settings.seeds was [0, 3] and is [0]"),
        (["--methods", "pld"], "settings.methods was"),
        (["--prompts", "{tmp}/set.jsonl"], "prompts.set.jsonl was"),
    ],
)
def test_another_run_is_refused_before_a_model_is_loaded(
    tmp_path: Path,
    command: list[str],
    whole: tuple[dict[str, Any], bytes],
    change: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models.loading, "load", None)
    (tmp_path / "set.jsonl").write_text('{"id": "c", "task": "code", "prompt": "other"}')
    (tmp_path / "x.journal.jsonl").write_bytes(whole[1])
    given = [word.format(tmp=tmp_path) for word in change]
    err = refused(*command, *given, "--json", str(tmp_path / "x.json"), "--resume")
    assert f"x.journal.jsonl is of another run: {said}" in err
    assert "or delete the file" in err


def test_other_versions_code_and_machines_are_other_runs(
    tmp_path: Path, command: list[str], whole: tuple[dict[str, Any], bytes]
) -> None:
    first, *rest = whole[1].splitlines(keepends=True)
    for key, value, said in (
        ("versions", {"torch": "0.1"}, "versions.draftwood was null"),
        ("git", {"commit": "0" * 40, "dirty": False}, "git"),
        ("hardware", {"cpu": "abacus"}, 'hardware.cpu was "abacus"'),
        ("model", {"dtype": "float16"}, "model.name was null"),
        ("contenders", {"ar": {}}, "contenders.ar.budget was null"),
    ):
        head = json.loads(first)
        changed = {**head, "facts": {**head["facts"], key: value}}
        content = json.dumps(changed).encode() + b"\n" + b"".join(rest)
        (tmp_path / "x.journal.jsonl").write_bytes(content)
        code, _, err = run(*command, "--json", str(tmp_path / "x.json"), "--resume")
        assert (code, said in err) == (2, True), (key, err)
