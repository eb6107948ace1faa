"""`draftwood train eagle3` after `train target`, from end to end, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM

from draftwood.cli.train import train
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.errors import DraftwoodError
from draftwood.lab.train.training_run import TrainingRun
from draftwood.protocols import TargetInfo
from tests.factories.trainable_heads import SHAPE

COMMON = "--mixture code=0.75,prose=0.25 --device cpu --threads 1 --length 32 --rows 4 --warmup 2"
TARGET = "--vocab-size 320 --hidden 16 --layers 4 --heads 4 --kv-heads 2 --head-dim 6 --ffn 24"


def run(what: str, data: Path, out: Path, options: str, *more: str) -> Result:
    words = [what, "--data", str(data), "--out", str(out), *COMMON.split(), *options.split(), *more]
    return CliRunner().invoke(train, words, catch_exceptions=False)


@pytest.fixture(scope="module")
def out(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("out")
    result = run("target", corpus, directory, f"{TARGET} --tokens 512")
    assert result.exit_code == 0, result.output
    return directory


def test_a_head_is_trained_for_the_finished_target(
    out: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = sorted((out / "cache").iterdir())
    options = "--tokens 512 --unroll 2 --taps 1+3 --draft-vocab 100"
    place = tmp_path / "head"
    result = run("eagle3", corpus, out, options, "--export", str(place))
    assert result.exit_code == 0, result.output
    # The target's tokenizer is the run's own: nothing is tokenised again.
    assert sorted((out / "cache").iterdir()) == cached

    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model", dtype=torch.float32)
    info = TargetInfo(320, SHAPE.context, 4, 16, torch.device("cpu"), torch.float32)
    head = load_head(place, info, model.get_input_embeddings())
    assert (list(head.config.taps), head.config.draft_vocab_size) == ([1, 3], 100)
    kept = out / "eagle3" / "model" / "model.safetensors"
    assert (place / "model.safetensors").read_bytes() == kept.read_bytes()

    record = json.loads((place / "provenance.json").read_text())
    assert record["finished"] is True
    assert record["parameters"] == sum(p.numel() for p in head.parameters())
    assert record["shape"]["taps"] == [1, 3]
    assert record["unroll"] == {"steps": 2, "decay": 0.8}
    assert record["target"]["name"] == "target"
    assert record["trained"]["tokens"] == 512
    assert record["data"]["files"].keys() == record["held_out"].keys() == {"code", "prose"}
    judged = record["held_out"]["code"]
    assert judged["chains"] > 0
    assert len(judged["accepted"]) == len(judged["greedy"]) == len(judged["nats_per_token"]) == 2
    assert record["command"].startswith("draftwood train eagle3 --data DATA --out OUT")
    assert "--unroll 2" in record["command"]
    assert str(tmp_path) not in json.dumps(record)

    for changed in ("--unroll 3", "--taps 0+3", "--draft-vocab 90"):
        with pytest.raises(DraftwoodError, match="another run"):
            run("eagle3", corpus, out, f"{options} {changed}")


def test_a_target_is_named_and_paused_training_taken_up(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    target = ("--target", str(out / "target" / "model"))
    options = "--tokens 512 --unroll 2 --stop-after"
    for updates in (1, 3):
        result = run("eagle3", corpus, tmp_path, f"{options} {updates}", *target)
        assert result.exit_code == 0, result.output
        path = tmp_path / "eagle3" / "model" / "provenance.json"
        record = json.loads(path.read_text())
        assert record["finished"] is (updates == 3)
    assert record["trained"]["updates"] == 4
    assert record["target"]["name"] == "model"
    assert record["command"].endswith("--target model")
    assert str(out) not in json.dumps(record)
    run("target", corpus, tmp_path, f"{TARGET} --tokens 512 --seed 9")
    with pytest.raises(DraftwoodError, match=r"another run \(target '\w+' there, '\w+' here\)"):
        run("eagle3", corpus, tmp_path, "--tokens 512 --unroll 2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--unroll 0", "--unroll is 0"),
        ("--taps 1+x", "--taps '1.x': write layer numbers"),
        ("--taps 4", "give layers from 0 to 3"),
        ("--draft-vocab 321", "give 1 to 320"),
        ("--heads 3", "evenly"),
        ("--unroll 17", "too short to unroll 17 steps"),
        ("--length 8192 --tokens 40000", "4096 tokens; give a shorter --length"),
        ("--target nowhere/at/all", "cannot load model"),
        ("--tokens 10", "fewer than one batch"),
    ],
)
def test_bad_flags_are_refused_before_any_work(
    out: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    message: str,
) -> None:
    def tokenise(*_args: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr(TrainingRun, "domains", tokenise)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    target = ("--target", str(out / "target" / "model"))
    words = f"--tokens 512 {options}"
    with pytest.raises(DraftwoodError, match=message):
        run("eagle3", corpus, tmp_path, words, *(() if "--target" in options else target))
    assert not (tmp_path / "eagle3").exists()


def test_an_unfinished_target_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match=r"no finished target .* --target"):
        run("eagle3", corpus, tmp_path, "--tokens 512")


@pytest.mark.parametrize(
    ("what", "flag"),
    [("eagle3", "--hidden"), ("eagle3", "--teacher-share"), ("target", "--unroll")],
)
def test_flags_of_other_models_are_unknown(
    corpus: Path, tmp_path: Path, what: str, flag: str
) -> None:
    result = run(what, corpus, tmp_path, f"{flag} 1")
    assert result.exit_code == 2
    assert "No such option" in result.output
