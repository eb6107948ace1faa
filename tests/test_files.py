"""Files of a command: refused early, whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.files import (
    check_apart,
    check_writable,
    is_stream,
    public_name,
    read_json,
    write_text,
)


def test_text_replaces_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    path.write_text("old")
    write_text(path, "τ\n")
    assert path.read_bytes() == "τ\n".encode()
    assert os.listdir(tmp_path) == ["out.svg"]


def test_the_file_has_default_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "out.svg", "a")
    assert (tmp_path / "out.svg").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_text(path, "first")
    path.chmod(0o640)
    write_text(path, "second")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text() == "second"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.svg"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.svg"]


def test_unwritable_paths_are_refused_and_no_file_is_left(tmp_path: Path) -> None:
    check_writable(tmp_path / "fine.svg")
    assert os.listdir(tmp_path) == []
    with pytest.raises(DraftwoodError, match="is a directory: name a file in it"):
        check_writable(tmp_path)
    with pytest.raises(
        DraftwoodError, match=r"cannot write to .*missing: there is no such directory"
    ):
        check_writable(tmp_path / "missing" / "out.svg")


def test_a_symbolic_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    kept = tmp_path / "data" / "out.svg"
    kept.write_text("old")
    link = tmp_path / "link.svg"
    link.symlink_to(kept)
    check_writable(link)
    write_text(link, "new")
    assert link.is_symlink()
    assert kept.read_text() == "new"
    dangling = tmp_path / "dangling.svg"
    dangling.symlink_to(tmp_path / "data" / "made.svg")
    check_writable(dangling)
    write_text(dangling, "new")
    assert dangling.is_symlink()
    assert sorted(os.listdir(tmp_path / "data")) == ["made.svg", "out.svg"]


def test_a_link_to_a_missing_directory_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.svg"
    link.symlink_to(tmp_path / "missing" / "out.svg")
    with pytest.raises(DraftwoodError, match=r"cannot write to .*missing: there is no such"):
        check_writable(link)


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "τ\n")
    assert os.read(reader, 100) == "τ\n".encode()
    os.close(reader)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


_PRINTING = """
from pathlib import Path
from draftwood.files import check_writable, write_text
place = Path("/dev/stdout")
check_writable(place)
print("before")
write_text(place, "content\\n")
print("after")
"""


@pytest.mark.parametrize("piped", [True, False])
def test_standard_output_keeps_its_order(tmp_path: Path, piped: bool) -> None:
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        handle = subprocess.PIPE if piped else file
        done = subprocess.run([sys.executable, "-c", _PRINTING], stdout=handle, check=True)
    content = done.stdout if piped else out.read_bytes()
    assert content == b"before\ncontent\nafter\n"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_an_output_is_neither_an_input_nor_another_output(tmp_path: Path) -> None:
    one, other, link = tmp_path / "one", tmp_path / "other", tmp_path / "link"
    one.write_text("input")
    link.symlink_to(one)
    check_apart([other, None], [one, None, "other"])
    with pytest.raises(DraftwoodError, match="link is read, and would be overwritten"):
        check_apart([link], [one])
    with pytest.raises(DraftwoodError, match="is read, and would be overwritten"):
        check_apart([one], [str(link)])
    with pytest.raises(DraftwoodError, match="other is named for two outputs"):
        check_apart([other, tmp_path / "." / "other"])


def test_a_stream_may_be_named_several_times(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_stream(pipe)
    assert not is_stream(tmp_path)
    assert not is_stream(tmp_path / "missing")
    check_apart([pipe, pipe], [pipe])


@pytest.mark.parametrize("content", ["{", "1" * 5000, "[" * 100_000])
def test_what_is_not_json_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DraftwoodError, match=r"x\.json is not JSON"):
        read_json(tmp_path / "x.json")


def test_a_published_name_has_no_parent_directories(tmp_path: Path) -> None:
    assert public_name(str(tmp_path)) == tmp_path.name
    assert public_name("owner/model") == "owner/model"
    assert public_name("smollm2") == "smollm2"
