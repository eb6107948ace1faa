"""``draftwood report``: the files it writes, and the arguments and files that it refuses."""

import json
import sys
from pathlib import Path

import pytest

from draftwood.lab.bench.plots import FIGURES
from draftwood.lab.bench.report.page import html
from tests.factories.command_line import output_of, refused
from tests.lab.bench.documents import document, parsed


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A benchmark's document."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(parsed()))
    return path


@pytest.mark.slow
def test_the_command_writes_the_page_and_the_figures(run_file: Path, tmp_path: Path) -> None:
    target, directory = tmp_path / "out.html", tmp_path / "new" / "plots"
    out = output_of("report", str(run_file), "--html", str(target), "--plots", str(directory))
    assert target.read_text(encoding="utf-8") == html(document())
    made = [directory / f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert out.splitlines() == [str(target), *map(str, made)]
    assert all(path.stat().st_size for path in made)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run.json"], "nothing to write: give --html OUT.html, --plots DIR or both"),
        (["no.json", "--html", "out.html"], "no.json: No such file"),
        (["run.json", "--html", "no/x.html"], "cannot write to"),
        (["run.json", "--plots", "run.json"], "cannot make run.json: File exists"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(run_file.parent)
    assert complaint in refused("report", *arguments)
    assert [path.name for path in run_file.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"hello", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "run.json: not a 'bench --json' file"),
        (b'{"schema": 1}', "run.json: this document has schema 1, and this version"),
        (b'{"schema": 4}', "run.json: complete is missing"),
    ],
)
def test_files_that_are_no_document_are_refused(
    run_file: Path, tmp_path: Path, content: bytes, complaint: str
) -> None:
    run_file.write_bytes(content)
    target = tmp_path / "out.html"
    assert complaint in refused("report", str(run_file), "--html", str(target))
    assert not target.exists()


@pytest.mark.parametrize("library", ["matplotlib", "scipy", "jinja2"])
def test_a_missing_library_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    target = tmp_path / "out.html"
    err = refused("report", str(tmp_path / "no.json"), "--html", str(target))
    assert f"needs {library}" in err
    assert "pip install 'draftwood[lab]'" in err
