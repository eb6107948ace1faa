"""The subcommand from end to end on a tiny model, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from draftwood import cli
from draftwood.bench import generating
from tests.tiny import save_tiny

METHODS = ["ar", "pld", "goose", "hf"]
METRICS = {
    "prompts",
    "tokens",
    "tokens_per_second",
    "speedup_vs_ar",
    "mean_acceptance_length",
    "acceptance_rate",
    "draft_efficiency",
    "target_calls",
    "identical",
    "compared",
    "looping_prompts",
    "p_s",
    "p_t",
    "routes",
    "kinds",
    "phases",
    "overhead_percent",
    "overhead_ms_per_step",
    "ttft_ms",
    "tpot_ms",
}
ROW = {"id", "set", "tokens", "seconds", "ttft", "tpot", "steps", "tau", "looping", "identical"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    plain = [{"id": f"c/{i}", "task": "code", "prompt": f"abc{i} abc{i} "} for i in range(2)]
    talk = [{"id": "m/0", "task": "chat", "turns": ["Say abc.", "Again."]}]
    for name, items in (("code", plain), ("talk", talk)):
        lines = "\n".join(json.dumps(item) for item in items)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    return f"{tmp_path / 'code.jsonl'},{tmp_path / 'talk.jsonl'}"


def run(*argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``draftwood bench ARGV``."""
    runner = CliRunner()
    with runner.isolation() as streams:
        code = 0
        try:
            cli.main(["bench", "--max-new-tokens", "16", *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


def bench(out: Path, *argv: str) -> dict[str, Any]:
    code, said, err = run("--json", str(out), *argv)
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
        for part in entry["by_set"].values():
            assert METRICS | {"without_looping"} <= set(part)
        # Two repeats: the reference is held against its own first one.
        assert entry["identical"] == entry["compared"] == 3, name
        assert entry["divergences"] == []
        assert len(entry["rows"]) == 6
        assert all(set(row) >= ROW for row in entry["rows"])
        assert [row["turns"] for row in entry["rows"] if row["set"] == "talk"] == [2, 2]
        assert set(entry["tokens_per_second"]) == {"median", "low", "high"}
        assert entry["tokens"] == sum(row["tokens"] for row in entry["rows"])
    methods = found["methods"]
    assert methods["ar"]["mean_acceptance_length"] == 1.0
    assert methods["hf"]["mean_acceptance_length"] == 1.0
    assert methods["hf"]["phases"] == {}
    assert methods["goose"]["settings"]["budget"] == 9
    assert methods["goose"]["mean_acceptance_length"] > 1.0
    assert set(methods["goose"]["phases"]) == {
        "draft",
        "target",
        "verify",
        "commit",
        "learn",
        "other",
    }
    assert methods["ar"]["speedup_vs_ar"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    where = found["provenance"]
    assert where["model"]["dtype"] == "float32"
    assert where["model"]["parameters"] > 0
    assert where["settings"]["repeats"] == 2
    assert len(where["prompts"]) == 2
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    goose = [step for step in steps if step["method"] == "goose"]
    assert len(goose) == methods["goose"]["target_calls"]
    assert sum(step["committed"] for step in goose) == sum(
        row["committed"] for row in methods["goose"]["rows"]
    )


def test_sampled_in_batches(tmp_path: Path, checkpoint: str, prompts: str) -> None:
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "pld,goose:budget=5,hf"]
    more = ["--temperature", "0.8", "--top-k", "20", "--seed", "5", "--batch", "2"]
    methods = bench(tmp_path / "out.json", *argv, *more)["methods"]
    assert list(methods) == ["ar", "pld", "goose:budget=5", "hf"]
    for name in ("pld", "goose:budget=5"):
        assert methods[name]["identical"] == methods[name]["compared"] == 3
    assert methods["hf"]["compared"] == 0  # its random numbers are its own
    rows = methods["pld"]["rows"]
    assert sorted((row["id"], row["group"], row["seed"]) for row in rows) == [
        ("c/0", 0, 5),
        ("c/1", 0, 6),
        ("m/0", 1, 7),
    ]


def test_all_peers_join_and_one_that_cannot_is_reported(
    tmp_path: Path, checkpoint: str, prompts: str
) -> None:
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--peers"]
    code, said, err = run("--json", str(out), *argv)
    assert code == 0, err
    found = json.loads(out.read_text())
    assert {"ar", "hf", "hf-lookup"} <= set(found["methods"])
    for name, entry in found["methods"].items():
        assert entry["identical"] == entry["compared"] == (0 if name == "ar" else 3), name
    lookup = found["methods"]["hf-lookup"]
    assert lookup["settings"] == {"tokens": 10, "ngram": 2}
    assert lookup["target_calls"] < found["methods"]["hf"]["target_calls"]
    assert lookup["acceptance_rate"] is None
    # The embedded draft has another vocabulary than the tiny target.
    assert "hf-assistant" not in found["methods"]
    assert "hf-assistant:model=NAME" in found["missing"]["hf-assistant"]
    assert json.loads(said.splitlines()[-1])["missing"] == found["missing"]
    assert "missing hf-assistant: the assistant 'embedded-draft' has 4096 tokens" in err


def test_a_peer_that_is_named_and_cannot_join_ends_the_run(checkpoint: str, prompts: str) -> None:
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf-assistant", "--peers"]
    code, out, err = run(*argv)
    assert code == 2
    assert "hf-assistant:model=NAME" in err
    assert out == ""


def test_assisted_peers_in_batches(tmp_path: Path, checkpoint: str, prompts: str) -> None:
    assistant = f"hf-assistant:model={checkpoint}:tokens=4"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", f"hf-lookup,{assistant}"]
    found = bench(tmp_path / "out.json", *argv, "--batch", "2")
    assert found["missing"] == {}
    for name in ("hf-lookup", assistant):
        entry = found["methods"][name]
        assert entry["identical"] == entry["compared"] == 3
        assert entry["mean_acceptance_length"] > 1.0
    sampled = bench(tmp_path / "out.json", *argv, "--temperature", "0.8")["methods"]
    assert sampled["hf-lookup"]["compared"] == sampled[assistant]["compared"] == 0


def test_a_wrong_token_is_reported(
    tmp_path: Path, checkpoint: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = generating._answer

    def lying(request: Any, row: list[int], *clock: Any) -> Any:
        return honest(request, [*row[:3], (row[3] + 1) % 256, *row[4:]], *clock)

    monkeypatch.setattr(generating, "_answer", lying)
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--limit", "1"]
    entry = bench(tmp_path / "out.json", *argv)["methods"]["hf"]
    assert (entry["identical"], entry["compared"]) == (0, 2)
    assert entry["near_ties"] == 0
    first = entry["divergences"][0]
    assert (first["id"], first["turn"], first["position"]) == ("c/0", 0, 3)
    assert first["gap"] > 1e-5
    assert [row["identical"] for row in entry["rows"]] == [False, False]


def test_an_interrupt_leaves_what_is_finished(
    tmp_path: Path, checkpoint: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = generating.Together.decode, 0

    def interrupted(self: generating.Together, requests: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the warm-up asks for the two turns of the dialogue
            raise KeyboardInterrupt
        return honest(self, requests)

    monkeypatch.setattr(generating.Together, "decode", interrupted)
    out = tmp_path / "out.json"
    argv = ["--prompts", prompts, "--model", checkpoint, "--methods", "hf", "--json", str(out)]
    code, said, _ = run(*argv)
    assert code == 130
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert found["methods"]["hf"]["prompts"] == 1
    assert json.loads(said.splitlines()[-1])["complete"] is False


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--methods", "nonsense"], "unknown method 'nonsense'"),
        (["--json", "{tmp}/missing/out.json"], "cannot write to"),
        (["--temperature", "-1"], "temperature"),
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
    code, out, err = run("--prompts", prompts, "--model", str(tmp_path / "no-model"), *given)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_prompts_that_do_not_fit_are_refused_or_cut(tmp_path: Path, checkpoint: str) -> None:
    long = {"id": "long", "task": "t", "prompt": "abc " * 100}
    (tmp_path / "long.jsonl").write_text(json.dumps(long))
    argv = ["--prompts", str(tmp_path / "long.jsonl"), "--model", checkpoint, "--methods", "ar"]
    code, _, err = run(*argv)
    assert code == 2
    assert "--truncate" in err
    found = bench(tmp_path / "out.json", *argv, "--truncate", "32")
    (row,) = found["methods"]["ar"]["rows"]
    assert row["truncated"] is True
    assert row["prompt_tokens"] == 32
