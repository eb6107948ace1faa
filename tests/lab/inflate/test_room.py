"""Estimates of memory and disk, and the sentences of what does not fit."""

from collections import namedtuple
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.inflate import room

Usage = namedtuple("Usage", "total used free")


def test_needed_is_weights_and_one_shard() -> None:
    assert room.needed(1_000, 4) == 8_000
    assert room.needed(8 * 10**9, 4) == 34 * 10**9


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available", lambda device: 8_000)
    room.check_memory(1_000, 4, "give up")
    monkeypatch.setattr(room, "available", lambda device: 22e9)
    with pytest.raises(DraftwoodError) as caught:
        room.check_memory(7 * 10**9, 4, "give up")
    assert str(caught.value) == (
        "7.00 billion parameters of 4 bytes need about 30.0 GB of memory and 22.0 GB are "
        "available: give up"
    )


def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(0, 0, 2_000))
    room.check_disk(tmp_path, 1_000, 2)
    with pytest.raises(DraftwoodError, match=r"the weights take 0\.0 GB and .* 0\.0 GB left"):
        room.check_disk(tmp_path, 1_000, 4)
