"""``draftwood harvest``: a table from text, for any method; refusals before work is spent."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import draftwood
from draftwood.drafters.adjacency.table_file import load
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.lab.harvest import reader
from draftwood.lab.harvest.shards import WorkDirectory
from tests.factories.command_line import output_of, refused, run

TEXT = "the cat sat on the mat; the cat sat on the hat\n"
LIGHT = "nowhere/at/all"
"""A model that cannot be loaded: what is refused is refused before."""


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 3 + "<|endoftext|>\nanother document\n")
    return str(path)


def harvested(checkpoint: str, text: str, out: Path, *argv: str) -> str:
    return output_of(
        "harvest", str(out), "--text", text, "--model", checkpoint, "--length", "64", *argv
    )


def test_a_table_records_where_it_comes_from(checkpoint: str, text: str, tmp_path: Path) -> None:
    out = tmp_path / "table.safetensors"
    said = harvested(checkpoint, text, out)
    assert str(out) in said
    assert not out.with_name("table.safetensors.work").exists()
    facts = load(out).facts
    assert (facts.model, facts.dtype) == (Path(checkpoint).name, "float32")
    assert facts.vocabulary
    assert facts.fingerprint
    assert facts.tokens == 3 * len(TEXT) - 1 + len("another document") + 1
    assert [(each.name, each.documents) for each in facts.text] == [("text.txt", 2)]
    # No directory of this machine is in the file.
    assert str(tmp_path).encode() not in out.read_bytes()


def test_two_harvests_are_equal_files(checkpoint: str, text: str, tmp_path: Path) -> None:
    further = tmp_path / "more.jsonl"
    further.write_text(json.dumps({"text": "more text"}) + "\n")
    files = [tmp_path / name for name in "abc"]
    harvested(checkpoint, f"{text},{further}", files[0])
    harvested(checkpoint, str(further), files[1], "--text", text)
    harvested(checkpoint, text, files[2])
    first, second, third = (path.read_bytes() for path in files)
    assert first == second != third


def test_kept_work_is_not_read_again(
    checkpoint: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    large, small = tmp_path / "large", tmp_path / "small"
    harvested(checkpoint, text, large, "--work", str(work))
    monkeypatch.setattr(reader, "batches_of", None)
    harvested(checkpoint, text, small, "--work", str(work), "--max-megabytes", "0.001")
    assert len(load(small).keys) < len(load(large).keys)


def test_a_second_process_in_the_same_directory_is_refused(
    checkpoint: str, text: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    harvested(checkpoint, text, tmp_path / "first", "--work", str(work))
    argv = ["--text", text, "--model", checkpoint, "--length", "64", "--work", str(work)]
    with WorkDirectory(work).alone():
        code, _, err = run("harvest", str(tmp_path / "second"), *argv)
    assert code == 2
    assert "another process works in" in err
    assert not (tmp_path / "second").exists()


def test_the_table_is_refused_for_another_tokenizer_and_warned_of_for_other_weights(
    checkpoint: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "table.safetensors"
    harvested(checkpoint, text, out)
    generate = ["hi", "--max-new-tokens", "4", "--method", "goose", "--adjacency.table", str(out)]
    own = output_of("generate", *generate, "--model", checkpoint)
    assert not caplog.records
    half = tmp_path / "half"
    shutil.copytree(checkpoint, half)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    model.save_pretrained(half)
    output_of("generate", *generate, "--model", str(half))
    assert not caplog.records, "a cast of the same weights is the same model"
    tuned = tmp_path / "tuned"
    shutil.copytree(checkpoint, tuned)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01)
    model.save_pretrained(tuned)
    output_of("generate", *generate, "--model", str(tuned))
    assert "was made with other weights" in caplog.text
    said = refused("generate", *generate, "--model", "embedded")
    assert "which has another tokenizer: harvest one with this model" in said
    assert own


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--text", "missing.txt"], "cannot read missing.txt"),
        (["--text", ","], "--text names no file"),
        (["--text", "TEXT", "--width", "0"], "width is 0; give at least 1"),
        (["--text", "TEXT", "--width", "300"], "width is 300"),
        (["--text", "TEXT", "--max-megabytes", "0"], "max_megabytes is 0"),
        (["--text", "TEXT", "--not-in", "TEXT.jsonl"], "document 2 shares 'another document'"),
        (["--text", "TEXT"], "cannot load model"),
    ],
)
def test_refusals(tmp_path: Path, text: str, argv: list[str], said: str) -> None:
    prompts = Path(f"{text}.jsonl")
    prompts.write_text(json.dumps({"id": "p", "task": "t", "prompt": "Another document."}) + "\n")
    given = [each.replace("TEXT", text) for each in argv]
    err = refused("harvest", str(tmp_path / "out"), *given, "--model", LIGHT)
    assert said in " ".join(err.split())
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", prompts.name}


def test_an_existing_file_and_a_missing_directory_are_refused(tmp_path: Path, text: str) -> None:
    rest = ["--text", text, "--model", LIGHT]
    assert "exists: delete it, or name another file" in refused("harvest", text, *rest)
    missing = str(tmp_path / "missing" / "out")
    assert "there is no such directory" in refused("harvest", missing, *rest)


def test_a_table_wider_than_the_vocabulary_or_a_longer_context_is_refused(
    checkpoint: str, text: str, tmp_path: Path
) -> None:
    rest = ["--text", text, "--model", checkpoint]
    said = refused("harvest", str(tmp_path / "out"), *rest, "--length", "100000")
    assert "--length is 100000, and the model's context is" in said


def test_text_that_was_harvested_is_drafted_in_the_first_step(tmp_path: Path) -> None:
    """With the embedded model: its own continuation is text, and the table is of it."""
    model, tokenizer = draftwood.models.embedded()
    prompt = tokenizer.encode("def area(width, height):")

    def decoded(method: str) -> Completion:
        return Engine(model, method, tokenizer).generate([Request(prompt, 32)])[0]

    plain = decoded("ar")
    source = tmp_path / "own.jsonl"
    source.write_text(json.dumps({"text": tokenizer.decode([*prompt, *plain.tokens])}) + "\n")
    out = tmp_path / "table"
    output_of("harvest", str(out), "--text", str(source), "--model", "embedded")
    for method in ("tr", "tr:adjacency.bigram=on", "goose"):
        cold, warm = decoded(method), decoded(f"{method}:adjacency.table={out}")
        assert cold.tokens == warm.tokens == plain.tokens
        assert warm.tally.steps < cold.tally.steps
    # A table of another text helps less.
    other = tmp_path / "other.txt"
    other.write_text("Once upon a time there was a king who had three sons.")
    output_of("harvest", str(tmp_path / "else"), "--text", str(other), "--model", "embedded")
    less = decoded(f"goose:adjacency.table={tmp_path / 'else'}")
    assert less.tokens == plain.tokens
    assert less.tally.steps > decoded(f"goose:adjacency.table={out}").tally.steps
    assert run("methods", "goose")[1].count("adjacency.table") == 1
