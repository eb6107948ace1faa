"""Every command takes the name of a packaged model where it takes a model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftwood.files import CACHE_VARIABLE
from tests.factories import tiny_gguf
from tests.factories.command_line import output_of
from tests.factories.tiny_gguf import NAME

BRIEF = "--max-new-tokens 8"
SHAPE = "--hidden 72 --layers 5 --heads 9 --kv-heads 3 --head-dim 32 --ffn 80"
HEAD = "--mixture code=0.75,prose=0.25 --device cpu --threads 1 --length 32 --rows 4 --warmup 2"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with prompts, for output; the package is installed and converted at most once."""
    directory = tmp_path_factory.mktemp("packaged")
    rows = [{"id": str(i), "task": "t", "prompt": f"ab{i}ab{i}ab"} for i in range(2)]
    (directory / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(directory / "cache"))
        tiny_gguf.install(directory / "site", patch)
        yield directory


@pytest.mark.parametrize(
    "command",
    [
        f"generate abab --model {NAME} --draft {NAME} --dtype bfloat16 {BRIEF}",
        f"tree abab --model {NAME} --method talon --draft {NAME} --budget 6",
        f"bench --model {NAME} --prompts P --methods ar,sd --draft {NAME} {BRIEF} --json OUT.json",
        f"bench --model {NAME} --prompts P --methods ar,hf-assistant:draft={NAME} {BRIEF}",
        f"calibrate OUT.json --model {NAME} --prompts P {BRIEF}",
        f"tune --model {NAME} --draft {NAME} --seconds 0.3 --context 16,32 --largest 5",
        f"sequoia OUT.json --largest --model {NAME} --draft {NAME} --prompts P {BRIEF}",
        f"check-lossless goose --model {NAME} --samples 20",
        f"inflate OUT --model {NAME} {SHAPE} --dtype float32",
    ],
    ids=lambda command: " ".join(command.split()[:1]),
)
def test_a_command(place: Path, tmp_path: Path, command: str) -> None:
    named = {"P": place / "p.jsonl", "OUT": tmp_path / "out", "OUT.json": tmp_path / "out.json"}
    output_of(*(str(named.get(word, word)) for word in command.split()))


def test_a_recording_and_its_replay(place: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "run.safetensors")
    prompts = str(place / "p.jsonl")
    output_of("record", "--prompts", prompts, "--model", NAME, *BRIEF.split(), "--out", file)
    output_of("replay", file, "--methods", f"sd:draft={NAME}", "--model", NAME)


def test_a_head_is_trained_for_it(place: Path, corpus: Path, tmp_path: Path) -> None:
    options = f"{HEAD} --tokens 512 --unroll 2 --taps 1+3 --draft-vocab 100 --target {NAME}"
    where = ("--data", str(corpus), "--out", str(tmp_path / "out"))
    output_of("train", "eagle3", *where, *options.split())
    head = str(tmp_path / "out" / "eagle3" / "model")
    output_of("generate", "abab", "--model", NAME, "--head", head, *BRIEF.split())
