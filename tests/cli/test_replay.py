"""``record``, ``replay`` and ``simulate`` on a tiny model: figures, files, errors, exit codes."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from draftwood.cli._replay_flags import Output, loads_of
from draftwood.costs.curve import Curve, StepCosts
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.decoding import PromptRun
from draftwood.lab.replay.figures import BatchLoad
from draftwood.lab.replay.file import read
from draftwood.lab.replay.pricing import NODE, STEP, expected_costs
from draftwood.lab.replay.recorder import Recorder
from draftwood.lab.replay.recording import RecordedPrompt
from draftwood.lab.replay.replayer import Replayer
from tests.factories.command_line import lost_reader, output_of, refused, run
from tests.factories.tiny_llama import save_tiny, tiny_llama


@pytest.fixture
def recorded(tmp_path: Path, checkpoint: str) -> str:
    lines = [{"id": f"c/{i}", "task": "code", "prompt": f"abc{i} abc{i} "} for i in range(2)]
    (tmp_path / "code.jsonl").write_text("\n".join(map(json.dumps, lines)))
    path = str(tmp_path / "r.safetensors")
    out = output_of(
        *("record", "--prompts", str(tmp_path / "code.jsonl"), "--model", checkpoint),
        *("--max-new-tokens", "16", "--out", path),
    )
    assert "2 prompts, 32 tokens" in out
    return path


def replay(path: str, output: Path, *argv: str) -> list[dict[str, Any]]:
    output_of("replay", path, "--json", str(output), *argv)
    found: list[dict[str, Any]] = json.loads(output.read_text())["methods"]
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_recording_has_the_prompts_that_are_done(
    name: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, number = Recorder.record, getattr(signal, name)
    # What runs the tests in the background may have the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def stopping(self: Recorder, index: int, prompt: Prompt) -> RecordedPrompt:
        if index == 2:
            os.kill(os.getpid(), number)
        return honest(self, index, prompt)

    monkeypatch.setattr(Recorder, "record", stopping)
    prompts, out = tmp_path / "p.jsonl", tmp_path / "r.safetensors"
    prompts.write_text("".join(json.dumps({"prompt": f"abc{i} "}) + "\n" for i in range(4)))
    try:
        code, said, _ = run(
            *("record", "--prompts", str(prompts), "--model", checkpoint, "--max-new-tokens", "4"),
            *("--out", str(out)),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 128 + number
    assert "2 of 4 prompts, 8 tokens" in said
    assert len(read(out).prompts) == 2


def test_a_replay_asks_the_model_once(recorded: str, checkpoint: str, tmp_path: Path) -> None:
    code, _, err = run("replay", recorded, "--methods", "goose", "--harvest", "as-set")
    assert (code, "give --model" in err) == (2, True)
    first = replay(recorded, tmp_path / "1.json", "--methods", "ar,goose", "--model", checkpoint)
    second = replay(recorded, tmp_path / "2.json", "--methods", "ar,goose")
    plain, goose = second
    assert [one.pop("live_prompts") for one in (*first, *second)] == [0, 2, 0, 0]
    for one in (*first, *second):
        del one["steps_per_second"], one["live_steps_per_second"]
    assert first == second
    assert plain["mean_acceptance_length"] == 1.0
    assert plain["acceptance_rate"] is None
    assert plain["steps"] == 2 * 15
    assert goose["steps"] < plain["steps"]


def test_a_replay_that_is_stopped_keeps_the_rows_of_the_model(
    recorded: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, prompts = Replayer.replay, 0

    def stopping(self: Replayer, *given: Any) -> PromptRun:
        nonlocal prompts
        prompts += 1
        if prompts == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return honest(self, *given)

    argv = "replay", recorded, "--methods", "goose", "--json", str(tmp_path / "1.json")
    size = read(Path(recorded)).size
    monkeypatch.setattr(Replayer, "replay", stopping)
    assert run(*argv, "--model", checkpoint)[0] == 143
    assert read(Path(recorded)).size > size
    assert not (tmp_path / "1.json").exists()
    monkeypatch.setattr(Replayer, "replay", honest)
    [goose] = replay(recorded, tmp_path / "2.json", "--methods", "goose", "--model", checkpoint)
    assert goose["live_prompts"] == 1


def test_figures_are_written_also_if_the_table_has_lost_its_reader(
    recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.cli._replay_flags.table", lost_reader)
    output = tmp_path / "o.json"
    assert run("replay", recorded, "--methods", "ar", "--json", str(output))[0] == 1
    assert [one["method"] for one in json.loads(output.read_text())["methods"]] == ["ar"]


def test_a_method_that_fails_does_not_take_the_others_along(recorded: str, tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    argv = ("--methods", "ar,goose,pld", "--harvest", "as-set", "--json", str(output))
    code, out, err = run("replay", recorded, *argv)
    assert (code, "goose: " in err, "give --model" in err) == (2, True, True)
    assert "pld" in out
    assert [one["method"] for one in json.loads(output.read_text())["methods"]] == ["ar", "pld"]


def test_a_default_recording_can_be_replayed_with_default_methods(
    recorded: str, tmp_path: Path
) -> None:
    before = Path(recorded).read_bytes()
    output = tmp_path / "o.json"
    code, _, err = run("replay", recorded, "--json", str(output))
    assert code == 0, err
    assert "lacks rows of rejected nodes, so its tables learn from accepted nodes only" in err
    found = {one["method"]: one for one in json.loads(output.read_text())["methods"]}
    fewer = "goose (accepted nodes only)", "auto (accepted nodes only)"
    assert set(found) == {"ar", "pld", *fewer}
    assert all(one["prompts"] == 2 for one in found.values())
    assert found["auto (accepted nodes only)"]["mean_acceptance_length"] > 1.0
    assert Path(recorded).read_bytes() == before
    accepted = ("--methods", "goose", "--harvest", "accepted")
    assert replay(recorded, output, *accepted)[0]["steps"] == found[fewer[0]]["steps"]
    assert replay(recorded, output, *accepted, "--limit", "1")[0]["prompts"] == 1


def test_speeds_are_estimated_for_every_load(recorded: str, tmp_path: Path) -> None:
    costs = StepCosts(Curve((1, 64), (0.01, 0.02)))
    (tmp_path / "costs.json").write_text(json.dumps({"costs": costs.to_json()}))
    loads = ("--batch", "1,4", "--context", "10")
    flags = ("--costs", str(tmp_path / "costs.json"), *loads)
    plain, pld = replay(recorded, tmp_path / "o.json", "--methods", "ar,pld", *flags)
    assert [one["load"] for one in plain["speeds"]] == [
        {"batch": 1, "context": 10},
        {"batch": 4, "context": 10},
    ]
    assert plain["speeds"][0]["tokens_per_second"] == pytest.approx(100)
    assert plain["speeds"][0]["speedup"] == pytest.approx(1)
    single = pld["mean_acceptance_length"] / (0.01 + 0.01 / 63 * pld["drafted_per_step"])
    assert pld["speeds"][0]["tokens_per_second"] == pytest.approx(single)
    gpu = ("--gpu", "h100", "--shape", "8b")
    (found,) = replay(recorded, tmp_path / "o.json", "--methods", "pld", *gpu)
    assert found["speeds"][0]["speedup"] > 0.9 * found["mean_acceptance_length"]


def test_prompts_are_replayed_in_batches(recorded: str, tmp_path: Path) -> None:
    costs = StepCosts(Curve((1, 64), (0.01, 0.02)))
    (tmp_path / "costs.json").write_text(json.dumps({"costs": costs.to_json()}))
    flags = ("--costs", str(tmp_path / "costs.json"), "--batch", "1,2", "--together")
    plain, pld = replay(recorded, tmp_path / "o.json", "--methods", "ar,pld", *flags)
    assert [one["speedup"] for one in plain["speeds"]] == [1.0, 1.0]
    assert plain["speeds"][0]["tokens_per_second"] == pytest.approx(100)
    assert plain["speeds"][1]["tokens_per_second"] == pytest.approx(2 / (0.01 + 0.01 / 63))
    contexts = [one["load"]["context"] for one in plain["speeds"]]
    assert [one["load"]["batch"] for one in plain["speeds"]] == [1, 2]
    assert contexts[0] == contexts[1] > 0
    assert pld["speeds"][1]["mean_acceptance_length"] == pytest.approx(
        pld["mean_acceptance_length"]
    )
    assert "--together has no use without step costs" in refused("replay", recorded, "--together")
    assert "leave --context out" in refused("replay", recorded, *flags, "--context", "10")


def test_auto_plans_its_trees_for_each_load(recorded: str, tmp_path: Path) -> None:
    # A node is free until 64 are scored, then as dear as a whole step.
    costs = StepCosts(Curve((1, 64, 128), (0.01, 0.0100001, 0.65)))
    (tmp_path / "costs.json").write_text(json.dumps({"costs": costs.to_json()}))
    flags = ("--costs", str(tmp_path / "costs.json"), "--batch", "1,64", "--context", "0")
    # What the prompt teaches gives so short a text its candidates.
    named = "goose:budget=16,auto:shipped=off:adjacency.prompt=true"
    methods = ("--methods", named, "--harvest", "accepted")
    fixed, auto = replay(recorded, tmp_path / "o.json", *methods, *flags)
    alone, crowded = auto["speeds"]
    assert alone["drafted_per_step"] > 1
    assert crowded["drafted_per_step"] < 0.1 * alone["drafted_per_step"]
    assert crowded["speedup"] > fixed["speeds"][1]["speedup"]
    assert crowded["mean_acceptance_length"] < alone["mean_acceptance_length"]
    first, second = (each["drafted_per_step"] for each in fixed["speeds"])
    assert first == second == fixed["drafted_per_step"]


def test_a_drafter_without_costs_is_refused(recorded: str) -> None:
    gpu = ("--gpu", "h100", "--shape", "8b")
    assert "costs of drafters draft are not known" in refused(
        "replay", recorded, "--methods", "sd", *gpu
    )
    several = "auto:neural=draft+eagle3:layout=ranked:shipped=off"
    assert "--draft-shape is of one draft model" in refused(
        "replay", recorded, "--methods", several, *gpu, "--draft-shape", "0.5b"
    )


@pytest.mark.parametrize("option", [("--device", "cpu"), ("--trust-remote-code",)])
def test_options_of_a_model_need_one(option: tuple[str, ...]) -> None:
    assert f"{option[0]} is of --model: give one" in refused("replay", "x", *option)


def test_another_model_is_refused(recorded: str, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other")
    tiny_llama(seed=9).save_pretrained(other)
    assert "has other weights" in refused(
        "replay", recorded, "--methods", "goose", "--model", str(other)
    )


def test_sampled_recordings_hold_their_settings(tmp_path: Path, checkpoint: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "task": "t", "turns": ["abc", "abd"]}')
    path = tmp_path / "r"
    flags = ("--temperature", "0.7", "--top-k", "9", "--top-p", "0.9", "--seed", "5", "--top", "4")
    output_of(
        *("record", "--prompts", str(tmp_path / "p.jsonl"), "--model", checkpoint, *flags),
        *("--max-new-tokens", "8", "--out", str(path)),
    )
    recording = read(path)
    settings = recording.settings
    assert (settings.temperature, settings.top_k, settings.top_p) == (0.7, 9, 0.9)
    assert (settings.seed, settings.width) == (5, 4)
    assert len(recording.prompts[0].texts) == 2
    assert recording.model.name == checkpoint


def test_the_default_methods_are_simulated_without_costs(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    flags = ("--sequences", "1", "--max-new-tokens", "20", "--json", str(path))
    output_of("simulate", *flags)
    found = {one["method"]: one for one in json.loads(path.read_text())["methods"]}
    assert list(found) == ["ar", "pld", "sd", "goose", "talon", "auto"]
    assert found["auto"]["mean_acceptance_length"] > 1.0
    assert not found["auto"]["speeds"], "speeds need costs"


def test_a_simulation_prints_and_writes_figures(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    out = output_of(
        *("simulate", "--methods", "ar,sd,goose,auto", "--rates", "draft=0.9", "--match", "0,0"),
        *("--sequences", "2", "--max-new-tokens", "40", "--json", str(path)),
        *("--gpu", "h100", "--shape", "8b", "--draft-shape", "0.5b", "--batch", "1,4"),
    )
    assert "goose" in out
    found = {one["method"]: one for one in json.loads(path.read_text())["methods"]}
    assert found["ar"]["mean_acceptance_length"] == 1.0
    assert found["sd"]["mean_acceptance_length"] > 3
    assert found["sd"]["draft_efficiency"] > 4
    assert found["goose"]["draft_efficiency"] == 0
    assert [s["load"]["batch"] for s in found["auto"]["speeds"]] == [1, 4]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--rates", "a,b"), "--rates 'a,b': write numbers"),
        (("--match", "0.5"), "--match '0.5': write a share and a length"),
        (("--real", "draft", "--methods", "sd"), "has a model"),
        (
            ("--rates", "drafft=0.9", "--methods", "sd"),
            "--rates: no method here has the source 'drafft': did you mean 'draft'?",
        ),
        (
            ("--match", "context=0.5,6", "--methods", "sd"),
            "--match: no method here has the source 'context': there is draft",
        ),
        (("--real", "context"), "--real: no method here has the source 'context': there is none"),
        (("--context", "10"), "--context has no use without step costs: give --costs or --gpu"),
        (("--json", "-"), "- is no file here: name /dev/stdout for standard output"),
        (("--batch", "0"), "--batch '0': write numbers of at least 1"),
        (("--gpu", "h100"), "--gpu and --shape belong together"),
        (("--gpu", "h1", "--shape", "8b"), "no GPU is called 'h1'"),
        (("--costs", "x", "--gpu", "h100"), "give one of them"),
        (("--costs", "/nowhere"), "cannot read /nowhere"),
        (("--methods", "traversal"), "samples its drafts"),
    ],
)
def test_wrong_options_are_refused_in_one_line(argv: tuple[str, ...], message: str) -> None:
    flags = argv if "--batch" not in argv else (*argv, "--gpu", "h100", "--shape", "8b")
    methods = () if "--methods" in argv else ("--methods", "ar")
    flags = (*methods, *flags, "--sequences", "1", "--max-new-tokens", "4")
    code, _, err = run("simulate", *flags)
    assert (code, message in err) == (2, True)


def test_loads_are_all_pairs() -> None:
    assert loads_of("1,4", "10,0") == [
        BatchLoad(1, 10),
        BatchLoad(1, 0),
        BatchLoad(4, 10),
        BatchLoad(4, 0),
    ]


def test_expected_costs_come_from_data_sheets() -> None:
    costs = expected_costs("h100", "8b", "0.5b", ["draft"])
    # 7.5 billion weights of 2 bytes at 0.8 of 3.35 TB/s, and a millisecond of launches.
    assert costs.target.seconds(1) == pytest.approx(0.0066, rel=0.05)
    assert costs.drafters["draft"].seconds(1) < costs.target.seconds(1) / 3
    assert (costs.fixed, costs.node) == (STEP, NODE)
    head = expected_costs("h100", "8b", "head", ["draft"]).drafters["draft"]
    assert costs.target.seconds(1) / 20 < head.seconds(1) < costs.drafters["draft"].seconds(1)
    assert Output(None, None, None, None, (), None).costs([]) is None
    with pytest.raises(DraftwoodError, match="no shape is called 'huge'"):
        expected_costs("h100", "huge")
