"""Compiled code is cached by all that it depends on; without a compiler there is none."""

import ctypes
import logging
import os
import platform
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE
from draftwood.kernels import compiled
from draftwood.kernels.compiled import VARIABLE, clear, entries, library

pytestmark = pytest.mark.skipif(compiled._command() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    directory = tmp_path / "answer"
    directory.mkdir()
    (directory / "number.h").write_text("const int NUMBER = 6;")
    (directory / "seven.cpp").write_text("int seven() { return 7; }")
    (directory / "answer.cpp").write_text(
        '#include "number.h"\nint seven();\nextern "C" int answer() { return NUMBER * seven(); }'
    )
    return directory


def made(sources: Path) -> bool:
    """Whether there is a library; as in a new process."""
    found = library.__wrapped__(sources)
    return found is not None and found.answer() == 42


def test_a_library_is_compiled_once(sources: Path, place: Path) -> None:
    assert made(sources)
    (path,) = place.glob("*.so")
    before = path.stat().st_mtime_ns
    assert made(sources)
    assert path.stat().st_mtime_ns == before
    (entry,) = entries()
    assert (entry.kind, entry.path, entry.about) == ("compiled", path, "answer")
    clear([entry])
    assert not list(place.iterdir())
    path.mkdir()
    with pytest.raises(DraftwoodError, match="cannot delete"):
        clear([entry])


def test_another_source_compiler_or_processor_has_its_own(
    sources: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made(sources)
    header = sources / "number.h"
    header.write_text(header.read_text() + "\n")
    assert made(sources)
    monkeypatch.setattr(compiled, "_FLAGS", (*compiled._FLAGS, "-g0"))
    assert made(sources)
    monkeypatch.setattr(compiled, "_processor", lambda: "another")
    assert made(sources)
    monkeypatch.setenv("CXX", "c++ -DANOTHER")
    assert made(sources)
    assert len(list(place.glob("*.so"))) == 5


def test_code_that_does_not_compile_is_named(
    sources: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (sources / "number.h").write_text("\nnonsense")
    assert library.__wrapped__(sources) is None
    assert "answer cannot be compiled or loaded" in caplog.text
    assert "number.h:2" in caplog.text
    assert "error" in caplog.text
    assert "included from" not in caplog.text
    assert not list(place.glob("*.so"))


def test_a_library_that_cannot_be_loaded_is_compiled_again(sources: Path, place: Path) -> None:
    command = compiled._command()
    assert command is not None
    path = compiled._path(sources, command)
    place.mkdir(parents=True)
    path.write_bytes(b"")
    assert made(sources)
    assert path.stat().st_size > 0


@pytest.fixture
def refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Directories from which no code can be loaded, as if mounted with ``noexec``."""
    directories, load = [place], ctypes.CDLL

    def loaded(path: str) -> ctypes.CDLL:
        if any(Path(path).is_relative_to(directory) for directory in directories):
            raise OSError(f"{path}: failed to map segment: Operation not permitted")
        return load(path)

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    return directories


@pytest.mark.usefixtures("refused")
def test_where_code_may_not_be_run_a_copy_is_loaded(
    sources: Path, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, compiled.__name__):
        assert made(sources)
    assert "Operation not permitted" in caplog.text
    (path,) = place.glob("*.so")
    monkeypatch.setattr(compiled, "_compiled", None)
    found = library.__wrapped__(sources)
    assert found is not None
    assert (found.answer(), Path(found._name).name) == (42, path.name)
    assert not Path(found._name).exists()


def test_where_no_code_may_be_run_it_is_not_compiled_again(
    sources: Path,
    refused: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused.append(Path(tempfile.gettempdir()))
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(os, "statvfs", lambda _path: flags)
    assert not made(sources)
    caplog.clear()
    monkeypatch.setattr(compiled, "_compiled", None)
    assert not made(sources)
    assert "Operation not permitted" in caplog.text
    assert f"{CACHE_VARIABLE}=DIRECTORY" in caplog.text


def test_a_finished_library_needs_no_lock(
    sources: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert made(sources)

    def refused(*_: object) -> None:
        raise NotImplementedError("no locks here")

    monkeypatch.setattr(compiled, "FileLock", refused)
    assert made(sources)
    (sources / "number.h").write_text("const int NUMBER = 6;\n")
    assert not made(sources)
    assert "no locks here" in caplog.text


def test_a_place_that_cannot_be_written_is_named(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert not made(sources)
    assert str(tmp_path / "file") in caplog.text
    assert f"{CACHE_VARIABLE}=DIRECTORY" in caplog.text


def test_a_compiler_that_does_not_end_is_stopped(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\ncase $1 in --version) ;; *) exec sleep 60 ;; esac\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(compiled, "_SECONDS", 0.5)
    assert not made(sources)
    assert "timed out after 0.5 seconds" in caplog.text


@pytest.mark.parametrize("why", ["off", "machine", "compilers", "no such compiler"])
def test_without_a_compiler_there_is_none(
    why: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match why:
        case "off":
            monkeypatch.setenv(VARIABLE, "off")
        case "machine":
            monkeypatch.setattr(platform, "machine", lambda: "riscv64")
        case "compilers":
            monkeypatch.setenv("PATH", "")
            monkeypatch.delenv("CXX", raising=False)
        case _:
            monkeypatch.setenv("CXX", "no-such-compiler -v")
    assert library.__wrapped__(sources) is None
