"""Outputs of commands: no input and no other output is lost, and pipes are written to."""

import os
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.outputs import Outputs
from draftwood.lab.bench.prompts import files
from tests.factories.command_line import refused
from tests.lab.bench.documents import document

_READ = "used.json is read, and would be overwritten: name another output"
_TWICE = "both.png is named for two outputs: name a file for each"
_PROMPTS = ("--prompts", "used.json")
_METHOD = "auto:calibration=used.json"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("bench", *_PROMPTS, "--json", "used.json"), _READ),
        (("bench", *_PROMPTS, "--html", "link.json"), "link.json is read"),
        (("bench", "--prompts", "edit:used.json", "--trace", "used.json"), _READ),
        (("bench", "--prompts", "x", "--methods", _METHOD, "--json", "used.json"), _READ),
        (("bench", *_PROMPTS, "--json", "both.png", "--html", "both.png"), _TWICE),
        (("bench", *_PROMPTS, "--html", "both.png", "--trace", "./both.png"), _TWICE),
        (
            ("bench", *_PROMPTS, "--json", "x.json", "--trace", "x.journal.jsonl"),
            "x.journal.jsonl is named for two outputs",
        ),
        (("search", "used.json", *_PROMPTS), _READ),
        (("search", "used.json", "--prompts", "x", "--not-in", "used.json"), _READ),
        (("search", "pipe", *_PROMPTS), "pipe is no file: name one"),
        (("sequoia", "used.json", *_PROMPTS), _READ),
        (("calibrate", "used.json", *_PROMPTS), _READ),
        (("calibrate", "used.json", "--prompts", "x", "--methods", _METHOD), _READ),
        (("record", *_PROMPTS, "--out", "used.json"), _READ),
        (("record", "--prompts", "x", "--not-in", "used.json", "--out", "used.json"), _READ),
        (("throughput", *_PROMPTS, "--json", "used.json"), _READ),
        (("replay", "used.json", "--json", "used.json"), _READ),
        (("replay", "x", "--costs", "used.json", "--json", "used.json"), _READ),
        (("simulate", "--costs", "used.json", "--json", "used.json"), _READ),
        (("report", "used.json", "--html", "used.json"), _READ),
        (("tune", "--json", "both.png", "--plot", "both.png"), _TWICE),
        (("tree", "--file", "used.json", "--svg", "used.json"), _READ),
        (("tree", "a", "--calibration", "used.json", "--svg", "used.json"), _READ),
        (
            ("check-lossless", "--endpoint", "http://x", *_PROMPTS, "--markdown", "used.json"),
            _READ,
        ),
        (
            ("train", "answers", "--prompts", "answers.txt.gz", "--out", "."),
            "answers.txt.gz is read",
        ),
    ],
)
def test_no_output_is_an_input_or_another_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = b'{"prompt": "abc"}\n'
    for name in ("used.json", "answers.txt.gz"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link.json").symlink_to("used.json")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    assert message in refused(*argv)
    assert (tmp_path / "used.json").read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == before


def test_the_files_of_a_view_are_those_of_its_sets() -> None:
    assert files("a.jsonl,hf:owner/name,edit:b.jsonl+c.jsonl") == [
        Path("a.jsonl"),
        Path("b.jsonl"),
        Path("c.jsonl"),
    ]
    assert files(None) == []


def test_a_document_goes_through_a_pipe_without_a_journal(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    outputs = Outputs(json=pipe)
    outputs.check()
    with pytest.raises(DraftwoodError, match="--resume needs --json OUT, a file"):
        outputs.journal(resume=True)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    outputs.write(document(methods={}))
    assert b'"schema"' in os.read(reader, 100)
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]
