"""``draftwood train`` from end to end on a toy corpus, and what it refuses before working."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from draftwood import Engine, Request, models
from draftwood.cli import main
from draftwood.cli.train import train
from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.drafters.medusa.checkpoint import load_medusa
from draftwood.errors import DraftwoodError
from draftwood.lab.alone import alone
from draftwood.lab.train.tokenizer import load_tokenizer
from draftwood.lab.train.trainer import Trainer
from draftwood.lab.train.training_run import TrainingRun
from draftwood.protocols import TargetInfo
from draftwood.runner.attach import attach, detach
from tests.factories.trainable_heads import SHAPE

MIXTURE = "--mixture code=0.75,prose=0.25"
COMMON = f"{MIXTURE} --device cpu --threads 1 --length 32 --rows 4 --warmup 2"
SIZES = "--vocab-size 320 --hidden 16 --layers 4 --heads 4 --kv-heads 2 --head-dim 6 --ffn 24"
TARGET = f"{COMMON} {SIZES} --tokens 512"
DRAFT = TARGET
HEAD = f"{COMMON} --tokens 512 --unroll 2"


def invoke(what: str, data: Path, out: Path, options: str, *more: str) -> Result:
    words = [what, "--data", str(data), "--out", str(out), *options.split(), *more]
    return CliRunner().invoke(train, words, catch_exceptions=False)


def run(what: str, data: Path, out: Path, options: str, *more: str) -> dict[str, Any]:
    """The provenance of the model that the command writes."""
    result = invoke(what, data, out, options, *more)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads((out / what / "model" / "provenance.json").read_text())
    assert str(out) not in json.dumps(found)
    return found


@pytest.fixture(scope="module")
def out(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a finished target."""
    directory = tmp_path_factory.mktemp("out")
    record = run("target", corpus, directory, TARGET)
    assert record["finished"] is True
    assert record["trained"]["tokens"] == 512
    assert record["data"]["files"].keys() == record["held_out"].keys() == {"code", "prose"}
    assert record["held_out"]["code"].keys() >= {
        "nats_per_token",
        "bits_per_byte",
        "greedy_loops",
        "greedy_repeated_8grams",
    }
    assert record["command"].startswith("draftwood train target --data DATA --out OUT")
    assert "--hidden 16" in record["command"]
    return directory


def test_the_target_is_a_checkpoint_of_transformers(out: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model")
    tokenizer = AutoTokenizer.from_pretrained(out / "target" / "model")
    assert model.config.vocab_size == len(tokenizer) == 320


def test_the_draft_learns_from_the_target(out: Path, corpus: Path, tmp_path: Path) -> None:
    record = run("draft", corpus, out, DRAFT, "--export", str(tmp_path / "draft"))
    assert record["recipe"]["teacher_share"] > 0
    assert 0 <= record["teacher"]["code"]["greedy"] <= 1
    assert json.loads((tmp_path / "draft" / "provenance.json").read_text()) == record
    assert (tmp_path / "draft" / "model.safetensors").is_file()


def test_a_place_that_cannot_take_the_export_is_refused_before_training(
    out: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "__init__", None)
    (tmp_path / "file").touch()
    with pytest.raises(DraftwoodError, match="file is a file: name another directory"):
        invoke("draft", corpus, out, f"{DRAFT} --seed 3", "--export", str(tmp_path / "file"))


def test_a_head_is_trained_for_the_finished_target(out: Path, corpus: Path) -> None:
    cached = sorted((out / "cache").iterdir())
    options = f"{HEAD} --taps 1+3 --draft-vocab 100"
    record = run("eagle3", corpus, out, options)
    # The target's tokenizer is the run's own: nothing is tokenised again.
    assert sorted((out / "cache").iterdir()) == cached

    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model", dtype=torch.float32)
    info = TargetInfo(320, SHAPE.context, 4, 16, torch.device("cpu"), torch.float32)
    head = load_head(out / "eagle3" / "model", info, model.get_input_embeddings())
    assert (list(head.config.taps), head.config.draft_vocab_size) == ([1, 3], 100)
    assert record["finished"] is True
    assert record["parameters"] == sum(p.numel() for p in head.parameters())
    assert record["shape"]["taps"] == [1, 3]
    assert record["unroll"] == {"steps": 2, "decay": 0.8}
    assert record["target"]["name"] == "target"
    held_out = record["held_out"]["code"]
    assert held_out["chains"] > 0
    assert record["held_out_answers"] == {}, "no special token ends a turn of this template"
    lists = ("accepted", "greedy", "nats_per_token")
    assert [len(held_out[name]) for name in lists] == [2, 2, 2]
    assert "--unroll 2 --taps 1+3" in record["command"]

    for changed in ("--unroll 3", "--taps 0+3", "--draft-vocab 90"):
        with pytest.raises(DraftwoodError, match="another run"):
            invoke("eagle3", corpus, out, f"{options} {changed}")


def test_medusa_heads_are_trained_for_the_finished_target(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    options = f"{COMMON} --tokens 512 --heads 2 --draft-vocab 100"
    target = ("--target", str(out / "target" / "model"))
    record = run("medusa", corpus, tmp_path, options, *target)
    assert record["shape"] == {"heads": 2, "layers": 1, "draft_vocab": 100}
    assert record["parameters"] == 2 * (16 * 16 + 16)
    assert len(record["held_out"]["code"]["greedy"]) == 2
    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model", dtype=torch.float32)
    runner = attach(model, self_test=False)
    heads = load_medusa(str(tmp_path / "medusa" / "model"), runner, torch.float32)
    assert (len(heads.blocks), len(heads.token_ids)) == (2, 100)
    for changed in ("--heads 3", "--layers 2", "--draft-vocab 90"):
        with pytest.raises(DraftwoodError, match="another run"):
            invoke("medusa", corpus, tmp_path, f"{options} {changed}", *target)


def test_a_dflash_drafter_is_trained_for_the_finished_target(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    options = f"{COMMON} --tokens 512 --block 4 --anchors 3 --layers 1 --draft-vocab 100"
    target = ("--target", str(out / "target" / "model"))
    record = run("dflash", corpus, tmp_path, options, *target)
    assert record["shape"]["block_size"] == 4
    assert record["shape"]["draft_vocab"] == 100
    assert len(record["held_out"]["code"]["greedy"]) == 3
    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model", dtype=torch.float32)
    runner = attach(model, self_test=False)
    network = load_dflash(str(tmp_path / "dflash" / "model"), runner, torch.float32)
    assert (network.config.drafted, len(network.token_ids)) == (3, 100)
    for changed in ("--block 5", "--layers 2", "--anchors 4"):
        with pytest.raises(DraftwoodError, match="another run"):
            invoke("dflash", corpus, tmp_path, f"{options} {changed}", *target)


def test_a_head_of_normed_taps_is_trained_in_bfloat16(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    target = ("--target", str(out / "target" / "model"))
    options = f"{HEAD} --fc-norm --tied --precision bfloat16"
    record = run("eagle3", corpus, tmp_path, options, *target)
    assert (record["fc_norm"], record["tied"]) == (True, True)
    assert record["command"].count("--fc-norm --") + record["command"].count("--tied --") == 2
    assert record["held_out"]["code"]["nats_per_token"][0] > 0
    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model", dtype=torch.float32)
    info = TargetInfo(320, SHAPE.context, 4, 16, torch.device("cpu"), torch.float32)
    embedding, output = model.get_input_embeddings(), model.lm_head
    head = load_head(tmp_path / "eagle3" / "model", info, embedding, output)
    norms = [weight for name, weight in head.named_parameters() if name.startswith("fc_norm")]
    assert [len(weight) for weight in norms] == [16, 16, 16]
    with pytest.raises(DraftwoodError, match="another run"):
        invoke("eagle3", corpus, tmp_path, f"{HEAD} --tied --precision bfloat16", *target)


def test_a_target_is_named_and_paused_training_resumed(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    target = ("--target", str(out / "target" / "model"))
    for updates in (1, 3):
        record = run("eagle3", corpus, tmp_path, f"{HEAD} --stop-after {updates}", *target)
        assert record["finished"] is (updates == 3)
    assert record["trained"]["updates"] == 4
    assert record["target"]["name"] == "model"
    assert record["command"].endswith("--target model")
    run("target", corpus, tmp_path, f"{TARGET} --seed 9")
    with pytest.raises(DraftwoodError, match=r"another run \(target '\w+' there, '\w+' here\)"):
        invoke("eagle3", corpus, tmp_path, HEAD)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_its_code_after_a_checkpoint(
    number: signal.Signals,
    code: int,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update = Trainer._update

    def signalled(self: Trainer) -> float:
        os.kill(os.getpid(), number)
        return update(self)

    monkeypatch.setattr(Trainer, "_update", signalled)
    words = ["train", "target", "--data", str(corpus), "--out", str(tmp_path), *TARGET.split()]
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == code
    assert (tmp_path / "target" / "checkpoint.pt").is_file()
    assert not (tmp_path / "target" / "model").exists()


@pytest.mark.parametrize("what", ["draft", "eagle3"])
def test_an_unfinished_target_does_not_teach(corpus: Path, tmp_path: Path, what: str) -> None:
    sources = tmp_path / "sources.json"
    sources.write_text('{"code": {"licences": ["MIT"]}}')
    options = f"{TARGET} --stop-after 2"
    record = run("target", corpus, tmp_path / "run", options, "--sources", str(sources))
    assert record["finished"] is False
    assert record["trained"]["updates"] == 2
    assert record["data"]["origin"] == {"code": {"licences": ["MIT"]}}
    with pytest.raises(DraftwoodError, match=r"no finished target .*"):
        invoke(what, corpus, tmp_path / "run", DRAFT if what == "draft" else HEAD)


def test_the_tokenizer_alone(corpus: Path, tmp_path: Path) -> None:
    result = invoke("tokenizer", corpus, tmp_path, f"{MIXTURE} --vocab-size 320")
    assert result.exit_code == 0, result.output
    assert len(AutoTokenizer.from_pretrained(tmp_path / "tokenizer")) == 320


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("target", "--mixture law=1", "names law"),
        ("target", "--mixture code", "domain=weight"),
        ("target", "--tokens 10", "less than one batch"),
        ("target", "--heads 3", "no multiple"),
        ("target", f"--seed {2**63}", "seed is 9223372036854775808"),
        ("target", "--device abacus", "device .abacus. cannot be used here"),
        ("target", "--sources nowhere.json", "nowhere.json"),
        ("target", "--data nowhere", "does not exist"),
        ("eagle3", "--unroll 0", "unroll is 0"),
        ("eagle3", "--taps 4", "give layers from 0 to 3"),
        ("eagle3", "--draft-vocab 321", "give 1 to 320"),
        ("eagle3", "--heads 3", "no multiple"),
        ("eagle3", "--unroll 17", "too short to unroll 17 steps"),
        ("eagle3", "--length 8192 --tokens 40000", "4096 tokens; give a shorter --length"),
        ("eagle3", "--target nowhere/at/all", "cannot load model"),
        ("medusa", "--heads 17", "too short to unroll 17 steps"),
        ("medusa", "--draft-vocab 321", "give 1 to 320"),
        ("dflash", "--block 1", "block is 1"),
        ("dflash", "--block 33", "too short to unroll 33 steps"),
        ("dflash", "--taps 0+2", "--taps has 0, the embedding"),
        ("dflash", "--heads 3", "3 query heads are no multiple of 2"),
        ("dflash", "--draft-vocab 321", "give 1 to 320"),
    ],
)
def test_bad_flags_are_refused_before_any_work(
    out: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    options: str,
    message: str,
) -> None:
    def tokenise(*_args: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr(TrainingRun, "domains", tokenise)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    usual = TARGET
    if what in ("eagle3", "medusa", "dflash"):
        usual = f"{COMMON} --tokens 512 --target {out / 'target' / 'model'}"
    with pytest.raises(DraftwoodError, match=message):
        invoke(what, corpus, tmp_path, f"{usual} {options}")
    assert not (tmp_path / what).exists()


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("eagle3", "--hidden 1", "No such option"),
        ("eagle3", "--teacher-share 1", "No such option"),
        ("target", "--unroll 1", "No such option"),
        ("eagle3", "--taps 1+x", "write layer numbers, such as 2+4+5"),
    ],
)
def test_flags_that_cannot_be_read_are_usage_errors(
    corpus: Path, tmp_path: Path, what: str, options: str, message: str
) -> None:
    result = invoke(what, corpus, tmp_path, options)
    assert result.exit_code == 2
    assert message in result.output


def test_another_run_in_the_same_directory_is_refused(out: Path, corpus: Path) -> None:
    with pytest.raises(DraftwoodError, match="another run"):
        invoke("target", corpus, out, f"{TARGET} --seed 5")


@pytest.mark.slow
@pytest.mark.skipif("qwen3_5_text" not in CONFIG_MAPPING, reason="not in this transformers")
def test_a_hybrid_is_trained_resumed_and_loaded_by_its_directory(
    corpus: Path, tmp_path: Path
) -> None:
    """In bfloat16, as on a GPU; with the tokenizer that it was trained with."""
    words = f"{TARGET} --recurrent 3 --precision bfloat16"
    stopped = invoke("target", corpus, tmp_path, words, "--stop-after", "2")
    assert stopped.exit_code == 0, stopped.output
    record = run("target", corpus, tmp_path, words)
    assert record["finished"] is True
    assert record["shape"]["recurrent"] == 3
    loaded = models.load(tmp_path / "target" / "model", dtype="float32")
    text = "def alpha(beta, n=3):\n    return café + 1\n"
    own = load_tokenizer(tmp_path / "tokenizer")
    ids = own.encode(text)
    assert loaded.tokenizer.encode(text) == ids
    model: Any = loaded.model
    wanted = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=0)
    [done] = Engine(loaded.model, "goose:budget=8").generate([Request(ids, 12)])
    assert [*ids, *done.tokens] == wanted[0].tolist()
    detach(loaded.model)


def test_a_draft_does_not_learn_from_a_target_of_another_tokenizer(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(out, tmp_path / "run")
    for path in (tmp_path / "run").glob("*/checkpoint.pt"):
        path.unlink()
    invoke("tokenizer", corpus, tmp_path / "run", f"{MIXTURE} --vocab-size 300")
    with pytest.raises(DraftwoodError, match="has another tokenizer than"):
        invoke("draft", corpus, tmp_path / "run", DRAFT)


def test_a_draft_of_another_target_is_another_run(out: Path, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "run", ignore=shutil.ignore_patterns("draft"))
    place = tmp_path / "run"
    run("draft", corpus, place, f"{DRAFT} --stop-after 1")
    weights = place / "target" / "model" / "model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, weights, {"format": "pt"})
    with pytest.raises(DraftwoodError, match=r"another run \(teacher '\w+' there, '\w+' here\)"):
        invoke("draft", corpus, place, DRAFT)
    old = torch.load(place / "draft" / "checkpoint.pt", weights_only=True)
    del old["identity"]["teacher"], old["decay_from"]
    torch.save(old, place / "draft" / "checkpoint.pt")
    assert run("draft", corpus, place, f"{DRAFT} --stop-after 1")["trained"]["updates"] == 2


def test_the_tokenizer_of_a_trained_model_is_not_replaced(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(out, tmp_path / "run")
    saved = (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_bytes()
    with pytest.raises(DraftwoodError, match="has a model that was trained with it"):
        invoke("tokenizer", corpus, tmp_path / "run", f"{MIXTURE} --vocab-size 300")
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").read_bytes() == saved
    result = invoke("tokenizer", corpus, tmp_path / "run", f"{MIXTURE} --vocab-size 320")
    assert result.exit_code == 0, "the same one may be made again"


def test_a_run_that_another_process_trains_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with (
        alone(tmp_path / "target", "--out"),
        pytest.raises(DraftwoodError, match="another process works in"),
    ):
        invoke("target", corpus, tmp_path, TARGET)


def test_an_export_replaces_no_files_but_those_of_its_command(
    out: Path, corpus: Path, tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "config.json").write_text("{}")
    with pytest.raises(DraftwoodError, match="mine has files that 'draftwood train target' did"):
        invoke("target", corpus, out, TARGET, "--export", str(place))
    (place / "provenance.json").write_text('{"source": {}}')
    with pytest.raises(DraftwoodError, match="mine has files"):
        invoke("target", corpus, out, TARGET, "--export", str(place))
    assert (place / "config.json").read_text() == "{}"
    for _ in range(2):
        run("target", corpus, out, TARGET, "--export", str(tmp_path / "new"))
    assert (tmp_path / "new" / "model.safetensors").is_file()


def test_an_unfinished_model_is_not_exported(corpus: Path, tmp_path: Path) -> None:
    place = tmp_path / "export"
    run("target", corpus, tmp_path / "run", f"{TARGET} --stop-after 1", "--export", str(place))
    assert not place.exists()


def test_a_tokenizer_of_another_size_is_told(
    out: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(out / "tokenizer", tmp_path / "run" / "tokenizer")
    run("target", corpus, tmp_path / "run", TARGET.replace("--vocab-size 320", "--vocab-size 330"))
    assert "has 320 tokens, not 330" in caplog.text
