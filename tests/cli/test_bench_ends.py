"""How the subcommand ends where it cannot go on: what is refused, and what an interrupt leaves."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from draftwood.lab.bench import generating
from tests.factories.bench_command import bench as run_bench
from tests.factories.bench_command import two_sets


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    return two_sets(tmp_path)


@pytest.mark.parametrize(
    ("flag", "library"),
    [("--plots", "matplotlib"), ("--html", "matplotlib"), ("--json", "scipy")],
)
def test_missing_libraries_are_refused_before_a_model_is_loaded(
    tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch, flag: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    nowhere = ["--prompts", prompts, "--model", str(tmp_path / "no-model")]
    code, _, err = run_bench(*nowhere, flag, str(tmp_path / "out"))
    assert code == 2
    assert "pip install 'draftwood[lab]'" in err
    assert not (tmp_path / "out").exists()


def test_a_peer_that_is_named_and_cannot_join_ends_the_run(checkpoint: str, prompts: str) -> None:
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf-assistant", "--peers"]
    code, out, err = run_bench(*argv)
    assert code == 2
    assert "hf-assistant:draft=PATH" in err
    assert out == ""


def test_an_interrupt_leaves_what_is_finished(
    tmp_path: Path, checkpoint: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = generating.Generate.decode, 0

    def interrupted(self: generating.Generate, requests: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the warm-up asks for the two turns of the dialogue
            raise KeyboardInterrupt
        return honest(self, requests)

    monkeypatch.setattr(generating.Generate, "decode", interrupted)
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--json", str(out)]
    code, said, _ = run_bench(*argv)
    assert code == 130
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert found["methods"]["hf"]["prompts"] == 1
    assert json.loads(said.splitlines()[-1])["complete"] is False


def test_an_interrupt_before_anything_has_ended_leaves_an_empty_document(
    tmp_path: Path, checkpoint: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: generating.Generate, requests: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(generating.Generate, "decode", interrupted)
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--json", str(out)]
    shown = ["--html", str(tmp_path / "out.html"), "--plots", str(tmp_path / "plots")]
    assert run_bench(*argv, *shown)[0] == 130
    assert (tmp_path / "out.html").exists()
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert found["methods"]["hf"]["rows"] == []
    assert not list(tmp_path.glob("*.journal.jsonl"))  # nothing to go on with


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--methods", "nonsense"], "unknown method 'nonsense'"),
        (["--json", "{tmp}/missing/out.json"], "cannot write to"),
        (["--html", "{tmp}/missing/out.html"], "cannot write to"),
        (["--plots", "{tmp}/missing/plots"], "cannot make"),
        (["--plots", "{tmp}/bad.jsonl"], "cannot make"),
        (["--temperature", "-1"], "temperature"),
        (["--seeds", "0,x"], "--seeds '0,x': write integers"),
        (["--seeds", "1,1"], "seed 1 is named twice"),
        (["--seeds", "0,-1"], "seed -1 is out of range"),
        (
            ["--draft", "some/draft", "--methods", "ar,goose"],
            "--draft some/draft: no contender of this run",
        ),
        (["--methods", "sd", "--head", "some/head"], "--head some/head: no contender"),
        (["--resume"], "--resume needs --json"),
        (["--resume", "--json", "{tmp}/out.json", "--warm"], "cannot continue a --warm run"),
        (["--resume", "--json", "{tmp}/out.json", "--trace", "{tmp}/t"], "--trace cannot be"),
        (["--limit", "0"], "limit"),
        (["--prompts", "{tmp}/missing.jsonl"], "cannot read prompts"),
        (["--prompts", "{tmp}/bad.jsonl"], "bad.jsonl:1: not a line of JSON"),
    ],
)
def test_bad_input_ends_with_one_line_before_a_model_is_loaded(
    tmp_path: Path, prompts: str, argv: list[str], said: str
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": ')
    given = [word.format(tmp=tmp_path) for word in argv]
    code, out, err = run_bench("--prompts", prompts, "--model", str(tmp_path / "no-model"), *given)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_prompts_that_do_not_fit_are_refused_or_cut(tmp_path: Path, checkpoint: str) -> None:
    long = {"id": "long", "task": "t", "prompt": "abc " * 100}
    (tmp_path / "long.jsonl").write_text(json.dumps(long))
    argv = ["--prompts", str(tmp_path / "long.jsonl"), "--model", checkpoint, "--methods", "ar"]
    code, _, err = run_bench(*argv)
    assert code == 2
    assert "--truncate" in err
    out = tmp_path / "out.json"
    assert run_bench(*argv, "--truncate", "32", "--json", str(out))[0] == 0
    (row,) = json.loads(out.read_text())["methods"]["ar"]["rows"]
    assert row["truncated"] is True
    assert row["prompt_tokens"] == 32
