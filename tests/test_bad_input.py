"""Bad input, damaged models and full disks: one line and an exit code, never a traceback."""

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import T5Config

from draftwood import cli, files
from draftwood.lab.replay.file import read as read_recording
from tests.factories.command_line import output_of, refused, run


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["bad\udcff"], "the prompt is not valid UTF-8, at character 3"),
        (["a\0b"], "the prompt contains a NUL character"),
        ([""], "the prompt is empty"),
        (["x", "--stop", ""], "a stop string must not be empty"),
        (["x", "--max-new-tokens", "0"], "'--max-new-tokens': 0 is not in the range"),
        (["x", "--budget", "1000000000"], "budget is 1000000000; at most 16384 nodes"),
        (["x", "--method", "traversal", "--verifier", "walk"], "verifier walk is not lossless"),
    ],
)
def test_what_needs_no_model_is_said_before_it_is_looked_for(
    argv: list[str], complaint: str
) -> None:
    assert complaint in refused("generate", *argv, "--model", "/nowhere/at-all")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff\xfe", "is not valid UTF-8, at byte 0"),
        (b"a\0b", "contains a NUL character"),
        (b"\n", "is empty"),
    ],
)
def test_files_that_are_no_prompt(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(content)
    assert complaint in refused("generate", "--file", str(file), "--model", "/nowhere/at-all")


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def widened(config: Path) -> None:
    fields = json.loads(config.read_text())
    config.write_text(json.dumps(fields | {"hidden_size": 2 * fields["hidden_size"]}))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (
            lambda place: truncated(place / "model.safetensors"),
            "its weights are damaged or not complete",
        ),
        (
            lambda place: (place / "model.safetensors").write_bytes(b"\xff" * 100),
            "its weights are damaged or not complete",
        ),
        (
            lambda place: widened(place / "config.json"),
            "the shapes of its weights are not those of its config.json",
        ),
        (
            lambda place: [file.unlink() for file in place.glob("tokenizer*")],
            "its tokenizer is missing or cannot be read: tokenizer.json belongs beside the model",
        ),
        (
            lambda place: T5Config(vocab_size=32).save_pretrained(place),
            "it is not a causal language model (decoder-only, as Llama or GPT-2)",
        ),
    ],
)
def test_damaged_models(
    checkpoint: str, tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    model = Path(shutil.copytree(checkpoint, tmp_path / "model"))
    spoil(model)
    err = refused("generate", "x", "--model", str(model))
    assert f"draftwood: cannot load model '{model}': {complaint}" in err.splitlines()[-1]


def test_a_path_that_is_no_model_says_what_to_give(checkpoint: str) -> None:
    file = Path(checkpoint) / "config.json"
    assert "this is a file; give the directory" in refused("generate", "x", "--model", str(file))
    assert "there is no such directory; give the one that holds config.json, or a hub id" in (
        refused("generate", "x", "--model", "/nowhere/x")
    )


def test_bias_is_checked_before_the_weights_are_read(checkpoint: str, tmp_path: Path) -> None:
    shutil.copy(Path(checkpoint) / "config.json", tmp_path)
    assert "logit_bias names token 9999" in refused(
        "generate", "x", "--logit-bias", "9999=1", "--model", str(tmp_path)
    )


def test_the_line_break_at_the_end_of_a_file_is_not_prompt(checkpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("abc abc\n")
    flags = ("--model", checkpoint, "--max-new-tokens", "8", "--json")
    _, from_file, _ = run("generate", "--file", str(file), *flags)
    _, from_text, _ = run("generate", "abc abc", *flags)
    assert json.loads(from_file)["tokens"] == json.loads(from_text)["tokens"]
    assert json.loads(from_file)["prompt_tokens"] == json.loads(from_text)["prompt_tokens"]


def test_tree_draws_the_first_step_that_drafts(checkpoint: str) -> None:
    out = output_of("tree", "abc abc abc ", "--model", checkpoint, "--method", "goose")
    assert "goose, step" in out
    assert "(0 drafted" not in out
    assert "steps drafted anything" in refused(
        "tree", "abc", "--model", checkpoint, "--method", "ar"
    )


def test_a_full_disk_is_one_line(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr("os.fsync", full)
    picture = tmp_path / "tree.svg"
    flags = ("--model", checkpoint, "--method", "goose", "--svg", str(picture))
    code, _, err = run("tree", "abc abc abc ", *flags)
    assert code == 1
    assert err.splitlines()[-1].startswith("draftwood: No space left on device")
    assert not list(tmp_path.iterdir())


def fill(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let files of these names, or all files if there are none, meet a full disk."""
    whole = files.write_bytes

    def write(path: Path, content: bytes) -> None:
        if not names or path.name in names:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        whole(path, content)

    monkeypatch.setattr("draftwood.files.write_bytes", write)
    if "out.journal.jsonl" in names:
        monkeypatch.setattr("draftwood.lab.bench.journal.append", write)


def asked(tmp_path: Path) -> tuple[str, ...]:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc"}\n')
    return ("--prompts", str(prompts), "--max-new-tokens", "4")


def test_a_recording_that_meets_a_full_disk_is_kept(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out.rec"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    fill(monkeypatch, "out.rec")
    flags = (*asked(tmp_path), "--model", checkpoint, "--out", str(out))
    code, _, err = run("record", *flags)
    (rescued,) = elsewhere.iterdir()
    assert code == 1
    assert f"draftwood: No space left on device: {out}; the result is in {rescued}" in err
    assert read_recording(rescued).prompts
    rescued.unlink()
    fill(monkeypatch)
    code, _, err = run("record", *flags)
    assert code == 1
    assert "could not be kept elsewhere" in err
    assert "is lost" in err


def test_a_benchmark_that_meets_a_full_disk_goes_on_from_its_journal(
    checkpoint: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    flags = (*asked(tmp_path), "--model", checkpoint, "--methods", "ar", "--json", str(out))
    with pytest.MonkeyPatch.context() as patch:
        fill(patch, "out.json")
        code, _, err = run("bench", *flags)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith(f"draftwood: No space left on device: {out}; ")
    assert f"kept in {tmp_path / 'out.journal.jsonl'}" in last
    assert "--resume" in last
    assert "tok/s" in err  # the table
    output_of("bench", *flags, "--resume")
    assert json.loads(out.read_text())["complete"]


def test_a_benchmark_without_a_journal_keeps_its_document(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    elsewhere, page = tmp_path / "elsewhere", tmp_path / "out.html"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    fill(monkeypatch, "out.html")
    flags = ("--model", checkpoint, "--methods", "ar", "--html", str(page))
    code, _, err = run("bench", *asked(tmp_path), *flags)
    (rescued,) = elsewhere.iterdir()
    assert code == 1
    assert f"No space left on device: {page}; the result is in {rescued}" in err
    assert json.loads(rescued.read_text())["complete"]
    code, _, err = run("report", str(rescued), "--html", str(page))
    assert (code, err) == (1, f"draftwood: No space left on device: {page}\n")


def test_a_journal_that_meets_a_full_disk_names_resume(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(monkeypatch, "out.journal.jsonl")
    flags = ("--methods", "ar", "--json", str(tmp_path / "out.json"))
    code, _, err = run("bench", *asked(tmp_path), "--model", checkpoint, *flags)
    assert code == 1
    assert err.splitlines()[-1].endswith("make room and repeat the command with --resume added")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_output_that_is_full_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "draftwood", "methods"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "draftwood: No space left on device\n"


def test_an_interrupted_text_is_kept_and_ends_with_130(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftwood.engine.engine import Engine

    whole, steps = Engine.step, []

    def step(engine: Engine) -> object:
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return whole(engine)

    monkeypatch.setattr(Engine, "step", step)
    flags = ("--model", checkpoint, "--method", "ar", "--max-new-tokens", "50", "--json")
    code, out, err = run("generate", "abc", *flags)
    assert code == 130, err
    assert json.loads(out)["finish_reason"] == "cancelled"
    assert json.loads(out)["tokens"]


def test_bare_draftwood_prints_its_help() -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    for heading in cli.SECTIONS:
        assert f"{heading}:" in out
    assert len(out.splitlines()) > 30


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (
            ["generate", "x", "--method", "sd"],
            "sd would draft with 'embedded-draft', which has another vocabulary",
        ),
        (
            ["generate", "x", "--method", "eagle3"],
            "name an EAGLE-3 head of this model by --head PATH",
        ),
        (["tree", "x", "--drafter", "model"], "name a draft model of this model by --draft PATH"),
        (["check-lossless", "sd"], "name a draft model of this model by --draft PATH"),
        (
            ["sequoia", "OUT", "--prompts", "PROMPTS"],
            "name a draft model of this model by --draft PATH",
        ),
        (
            ["calibrate", "OUT", "--prompts", "PROMPTS", "--methods", "auto:drafter=model"],
            "by --draft",
        ),
        (
            ["bench", "--prompts", "PROMPTS", "--methods", "ar,sd", "--json", "OUT"],
            "by --draft PATH",
        ),
    ],
)
def test_a_model_of_ones_own_needs_a_draft_model_of_its_own(
    checkpoint: str, tmp_path: Path, argv: list[str], complaint: str
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.json"
    prompts.write_text('{"prompt": "abc abc"}\n')
    words = [{"PROMPTS": str(prompts), "OUT": str(out)}.get(word, word) for word in argv]
    assert complaint in refused(*words, "--model", checkpoint)
    assert not out.exists()


def test_calibrating_a_model_of_ones_own_needs_no_draft_model(
    checkpoint: str, tmp_path: Path
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.json"
    prompts.write_text('{"prompt": "abc abc abc "}\n')
    flags = ("--model", checkpoint, "--max-new-tokens", "4", "--temperatures", "0")
    printed = output_of("calibrate", str(out), "--prompts", str(prompts), *flags)
    assert "1 answers counted" in printed
    printed = output_of(
        "calibrate", str(out), "--prompts", str(prompts), *flags, "--draft", checkpoint
    )
    assert "2 answers counted" in printed


def test_a_directory_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_arguments: object) -> None:
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", nowhere)
    out = tmp_path / "out.json"
    err = refused("bench", *asked(tmp_path), "--methods", "ar", "--json", str(out))
    assert err == (
        f"draftwood: cannot write to {tmp_path}: no file can be made there (No such file or "
        "directory); name another directory\n"
    )
    out = tmp_path / "missing" / "out.json"
    code, _, err = run("bench", *asked(tmp_path), "--methods", "ar", "--json", str(out))
    assert (code, err) == (
        2,
        f"draftwood: cannot write to {out.parent}: there is no such directory; make it first\n",
    )


def test_a_step_after_the_end_of_the_text(checkpoint: str) -> None:
    flags = ("--model", checkpoint, "--method", "ar", "--step", "100000")
    err = refused("tree", "abc abc abc ", *flags)
    assert "draftwood: there is no step 100000: the text ended after " in err
    assert err.endswith(" steps; give an earlier --step\n")
