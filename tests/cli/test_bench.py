"""The subcommand from end to end on a tiny model, and how it ends where it cannot go on."""

import json
import sys
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from draftwood.lab.bench import generating
from draftwood.lab.bench.figures import Metrics
from tests.factories.bench_command import bench as run_bench
from tests.factories.bench_command import two_sets
from tests.factories.command_line import lost_reader

METHODS = ["ar", "pld", "goose", "hf"]
METRICS = {member.name for member in fields(Metrics)}
PHASES = {"draft", "target", "verify", "commit", "learn", "other"}


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    return two_sets(tmp_path)


def bench(out: Path, *argv: str) -> dict[str, Any]:
    code, said, err = run_bench("--json", str(out), *argv)
    assert code == 0, err
    assert json.loads(said.splitlines()[-1])["complete"]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_greedy_methods_agree_and_the_schema_is_whole(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    out, trace = tmp_path / "out.json", tmp_path / "trace.jsonl"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", ",".join(METHODS)]
    found = bench(out, *argv, "--repeats", "2", "--budget", "9", "--trace", str(trace))
    assert found["complete"] is True
    assert list(found["methods"]) == METHODS
    for name, entry in found["methods"].items():
        assert set(entry) >= METRICS
        assert set(entry["without_looping"]) >= METRICS
        assert set(entry["by_set"]) == {"code", "talk"}
        assert set(entry["by_task"]) == {"code", "chat"}
        assert entry["by_seed"] == {}
        for part in (*entry["by_set"].values(), *entry["by_task"].values()):
            assert METRICS | {"without_looping"} <= set(part)
        # Two repeats: the reference is held against its own first one.
        assert entry["identical"] == entry["compared"] == 3, name
        assert entry["divergences"] == []
        assert len(entry["rows"]) == 6
        assert [row["turns"] for row in entry["rows"] if row["set"] == "talk"] == [2, 2]
        assert set(entry["tokens_per_second"]) == {"median", "low", "high"}
        assert entry["tokens"] == sum(row["tokens"] for row in entry["rows"])
    methods = found["methods"]
    assert methods["ar"]["mean_acceptance_length"]["value"] == 1.0
    assert methods["hf"]["mean_acceptance_length"]["value"] == 1.0
    assert methods["hf"]["phases"] == {}
    assert methods["goose"]["settings"]["budget"] == 9
    assert methods["goose"]["mean_acceptance_length"]["value"] > 1.0
    assert set(methods["goose"]["phases"]) == PHASES
    for name in ("ar", "hf"):
        assert methods[name][f"speedup_vs_{name}"] == {"median": 1.0, "low": None, "high": None}
    # The first prompt of each task; methods in the order of the run, without peers.
    assert [(one["task"], one["method"], one["id"]) for one in found["excerpts"]] == [
        (task, name, id)
        for task, id in (("code", "c/0"), ("chat", "m/0"))
        for name in ("ar", "pld", "goose")
    ]
    where = found["provenance"]
    assert where["model"]["dtype"] == "float32"
    assert where["model"]["parameters"] > 0
    assert where["settings"]["repeats"] == 2
    assert where["resumed"] == []
    assert len(where["prompts"]) == 2
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    goose = [step for step in steps if step["method"] == "goose"]
    assert len(goose) == methods["goose"]["target_calls"]
    assert sum(step["committed"] for step in goose) == sum(
        row["committed"] for row in methods["goose"]["rows"]
    )


def test_sampled_in_batches(tmp_path: Path, checkpoint: str, prompts: str) -> None:
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "pld,goose:budget=5,hf"]
    more = ["--temperature", "0.8", "--top-k", "20", "--seeds", "5,0", "--batch", "2"]
    found = bench(tmp_path / "out.json", *argv, *more)
    methods = found["methods"]
    assert list(methods) == ["ar", "pld", "goose:budget=5", "hf"]
    for name in ("pld", "goose:budget=5"):
        assert methods[name]["identical"] == methods[name]["compared"] == 3
    assert methods["hf"]["compared"] == 0  # its random numbers are its own
    rows = methods["pld"]["rows"]
    assert [(row["id"], row["group"], row["run_seed"], row["seed"]) for row in rows] == [
        ("c/0", 0, 5, 5),
        ("c/1", 0, 5, 6),
        ("m/0", 1, 5, 7),
        ("c/0", 0, 0, 0),
        ("c/1", 0, 0, 1),
        ("m/0", 1, 0, 2),
    ]
    assert set(methods["pld"]["by_seed"]) == {"5", "0"}
    assert found["provenance"]["settings"]["seeds"] == [5, 0]
    assert len({one["id"] for one in found["excerpts"]}) == 2
    assert len(found["excerpts"]) == 6  # of the first seed only


@pytest.mark.slow
def test_a_page_and_figures_of_the_same_document(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    page, plots, trace = tmp_path / "out.html", tmp_path / "plots", tmp_path / "trace.jsonl"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "pld,auto,hf"]
    more = ["--html", str(page), "--plots", str(plots), "--trace", str(trace)]
    found = bench(tmp_path / "out.json", *argv, *more)
    assert page.read_text().lower().startswith("<!doctype html>")
    assert found["provenance"]["date"][:10] in page.read_text()
    assert (plots / "speedup.png").read_bytes().startswith(b"\x89PNG")
    assert (plots / "speedup.svg").exists()
    # What auto foretold is in the trace, in the document and on the page.
    entries = found["methods"]
    assert [name for name in entries if entries[name]["reliability"]] == ["auto"]
    whole = entries["auto"]["reliability"]["all_steps"]
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    told = [step for step in steps if step["predicted"] is not None]
    assert {step["method"] for step in told} == {"auto"}
    assert whole["steps"] == len(told) > 0
    assert whole["predicted"] == pytest.approx(sum(step["predicted"] for step in told))
    assert whole["committed"] == sum(step["accepted"] + 1 for step in told)
    assert sum(each["candidates"] for each in whole["by_source"].values()) > 0
    assert "Calibration: predicted and observed acceptance" in page.read_text()


@pytest.mark.slow
def test_a_draft_model_for_whoever_has_none_of_its_own(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    # The embedded draft has another vocabulary than this target, and would be refused.
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "sd", "--draft", checkpoint]
    found = bench(tmp_path / "out.json", *argv, "--peers", "--batch", "2")
    methods = found["methods"]
    assert methods["sd"]["settings"]["draft"] == checkpoint
    assert methods["sd"]["acceptance_rate"]["value"] > 0.5  # the target drafts for itself
    assert methods["hf-assistant"]["settings"]["draft"] == checkpoint
    assert methods["hf-assistant"]["mean_acceptance_length"]["value"] > 1.0
    assert "hf-assistant" not in found["missing"]
    for name in ("sd", "hf-assistant", "hf-lookup"):
        assert methods[name]["identical"] == methods[name]["compared"] == 3


@pytest.mark.slow
def test_warm_tables_live_on_and_have_not_seen_the_warm_up(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "tr,pld", "--repeats", "2"]
    cold, warm = bench(out, *argv), bench(out, *argv, "--warm")
    assert warm["provenance"]["settings"]["warm"] is True
    assert warm["methods"]["tr"]["settings"]["adjacency.shared"] is True
    assert cold["methods"]["tr"]["settings"]["adjacency.shared"] is False

    def accepted(found: dict[str, Any], name: str) -> list[int]:
        assert found["methods"][name]["identical"] == 3
        return [row["accepted"] for row in found["methods"][name]["rows"]]

    drafted = accepted(cold, "tr")
    assert drafted[:3] == drafted[3:]
    again = accepted(warm, "tr")
    assert again[0] == drafted[0]
    assert sum(again[3:]) > sum(again[:3])
    assert accepted(warm, "pld") == accepted(cold, "pld")
    assert not list(tmp_path.glob("*.journal.jsonl"))


def test_all_peers_join_and_one_that_cannot_is_reported(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--peers"]
    code, said, err = run_bench("--json", str(out), *argv)
    assert code == 0, err
    found = json.loads(out.read_text())
    assert {"ar", "hf", "hf-lookup"} <= set(found["methods"])
    for name, entry in found["methods"].items():
        assert entry["identical"] == entry["compared"] == (0 if name == "ar" else 3), name
    lookup = found["methods"]["hf-lookup"]
    assert lookup["settings"] == {"tokens": 10, "ngram": 2}
    assert lookup["target_calls"] < found["methods"]["hf"]["target_calls"]
    assert lookup["acceptance_rate"]["value"] is None
    # The embedded draft has another vocabulary than the tiny target.
    assert "hf-assistant" not in found["methods"]
    assert "hf-assistant:draft=PATH" in found["missing"]["hf-assistant"]
    assert json.loads(said.splitlines()[-1])["missing"] == found["missing"]
    assert "missing hf-assistant: the assistant 'embedded-draft' has 4096 tokens" in err


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


@pytest.mark.parametrize(
    ("call", "finished"),
    [(1, 0), (3, 1)],  # the warm-up asks once
)
def test_an_interrupt_leaves_what_is_finished(
    tmp_path: Path,
    checkpoint: str,
    prompts: str,
    monkeypatch: pytest.MonkeyPatch,
    call: int,
    finished: int,
) -> None:
    honest, calls = generating.Generate.decode, count(1)

    def interrupted(self: generating.Generate, requests: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return honest(self, requests)

    monkeypatch.setattr(generating.Generate, "decode", interrupted)
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--json", str(out)]
    code, said, _ = run_bench(*argv, "--html", str(page), "--plots", str(tmp_path / "plots"))
    assert code == 130
    assert json.loads(said.splitlines()[-1])["complete"] is False
    assert page.exists()
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert len(found["methods"]["hf"]["rows"]) == finished
    assert len(list(tmp_path.glob("*.journal.jsonl"))) == finished  # nothing to go on with


def test_a_complete_run_has_no_journal_also_if_its_summary_has_lost_its_reader(
    tmp_path: Path, checkpoint: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.lab.bench.document.summary", lost_reader)
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "ar", "--json", str(out)]
    assert run_bench(*argv)[0] == 1
    assert json.loads(out.read_text())["complete"] is True
    assert not list(tmp_path.glob("*.journal.jsonl"))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--json", "{tmp}/missing/out.json"], "cannot write to"),
        (["--html", "{tmp}/missing/out.html"], "cannot write to"),
        (["--plots", "{tmp}/bad.jsonl"], "cannot make"),
        (["--temperature", "-1"], "temperature"),
        (["--seeds", "0,x"], "--seeds '0,x': write integers"),
        (["--seeds", "0,-1"], "seed -1 is out of range"),
        (
            ["--draft", "some/draft", "--methods", "ar,goose"],
            "--draft some/draft: no contender of this run",
        ),
        (["--resume"], "--resume needs --json"),
        (["--resume", "--json", "{tmp}/out.json", "--warm"], "cannot continue a --warm run"),
        (["--resume", "--json", "{tmp}/out.json", "--trace", "{tmp}/t"], "--trace cannot be"),
        (["--limit", "0"], "limit"),
        (["--batch", "4"], "--batch has 4, and there are only 3 prompts: give at most 3"),
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
