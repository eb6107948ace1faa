"""The command from end to end on a toy corpus, and what it refuses before working."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, AutoTokenizer

from draftwood.cli.train import train
from draftwood.errors import DraftwoodError

_SETTINGS = {
    "--hidden": 32,
    "--layers": 2,
    "--heads": 2,
    "--kv-heads": 1,
    "--head-dim": 16,
    "--ffn": 48,
    "--length": 32,
    "--rows": 4,
    "--warmup": 2,
    "--threads": 1,
}
_MODEL = [word for flag, value in _SETTINGS.items() for word in (flag, str(value))]


def run(what: str, data: Path, out: Path, *options: str) -> Result:
    words = [what, "--data", str(data), "--out", str(out), "--vocab-size", "320"]
    words += ["--mixture", "code=0.75,prose=0.25", "--device", "cpu", *options]
    return CliRunner().invoke(train, words, catch_exceptions=False)


@pytest.fixture(scope="module")
def out(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("out")
    result = run("target", corpus, directory, *_MODEL, "--tokens", "1024")
    assert result.exit_code == 0, result.output
    return directory


def test_the_target_is_exported_with_its_record(out: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(out / "target" / "model")
    tokenizer = AutoTokenizer.from_pretrained(out / "target" / "model")
    assert model.config.vocab_size == len(tokenizer) == 320
    record = json.loads((out / "target" / "model" / "provenance.json").read_text())
    assert record["finished"] is True
    assert record["trained"]["tokens"] == 1024
    assert record["data"]["files"].keys() == record["held_out"].keys() == {"code", "prose"}
    assert record["held_out"]["code"].keys() >= {
        "nats_per_token",
        "bits_per_byte",
        "greedy_loops",
        "greedy_repeated_8grams",
    }
    assert "--data DATA --out OUT" in record["command"]
    assert "--hidden 32" in record["command"]
    assert str(out) not in json.dumps(record)


def test_the_draft_learns_from_the_target(out: Path, corpus: Path, tmp_path: Path) -> None:
    result = run(
        "draft", corpus, out, *_MODEL, "--tokens", "512", "--export", str(tmp_path / "draft")
    )
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "draft" / "provenance.json").read_text())
    assert record["recipe"]["teacher_share"] > 0
    assert 0 <= record["teacher"]["code"]["greedy"] <= 1
    assert (tmp_path / "draft" / "model.safetensors").is_file()


def test_a_paused_target_is_exported_as_unfinished_and_does_not_teach(
    corpus: Path, tmp_path: Path
) -> None:
    sources = tmp_path / "sources.json"
    sources.write_text('{"code": {"licences": ["MIT"]}}')
    options = ("--tokens", "1024", "--stop-after", "2", "--sources", str(sources))
    result = run("target", corpus, tmp_path / "run", *_MODEL, *options)
    assert result.exit_code == 0, result.output
    path = tmp_path / "run" / "target" / "model" / "provenance.json"
    record = json.loads(path.read_text())
    assert record["finished"] is False
    assert record["trained"]["updates"] == 2
    assert record["data"]["origin"] == {"code": {"licences": ["MIT"]}}
    with pytest.raises(DraftwoodError, match="no finished target"):
        run("draft", corpus, tmp_path / "run", *_MODEL, "--tokens", "512")


def test_the_tokenizer_alone(corpus: Path, tmp_path: Path) -> None:
    result = run("tokenizer", corpus, tmp_path)
    assert result.exit_code == 0, result.output
    assert len(AutoTokenizer.from_pretrained(tmp_path / "tokenizer")) == 320


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mixture", "law=1"], "names law"),
        (["--mixture", "code"], "domain=weight"),
        (["--tokens", "10"], "fewer than one batch"),
        (["--heads", "3", "--kv-heads", "2"], "evenly"),
        (["--device", "abacus"], "not a device"),
        (["--sources", "nowhere.json"], "nowhere.json"),
        (["--length", "20000"], "fewer than one batch"),
    ],
)
def test_bad_flags_are_refused_before_any_work(
    corpus: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(DraftwoodError, match=message):
        run("target", corpus, tmp_path / "run", *_MODEL, "--tokens", "1024", *options)
    assert not (tmp_path / "run" / "target").exists()


def test_missing_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="does not exist"):
        run("target", tmp_path / "none", tmp_path / "run")


def test_another_run_in_the_same_directory_is_refused(out: Path, corpus: Path) -> None:
    with pytest.raises(DraftwoodError, match="another run"):
        run("target", corpus, out, *_MODEL, "--tokens", "1024", "--seed", "5")
