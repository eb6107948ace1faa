"""Files of a command: refused early, whole or not at all."""

import os
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, public_name, write_text


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


def test_a_published_name_has_no_parent_directories(tmp_path: Path) -> None:
    assert public_name(str(tmp_path)) == tmp_path.name
    assert public_name("owner/model") == "owner/model"
    assert public_name("smollm2") == "smollm2"
