"""Checkpoints come back as they were, or say what is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

CHECKPOINT = Checkpoint(
    step=7,
    wall_seconds=1.5,
    cpu_seconds=2.5,
    identity={"seed": 1, "shape": {"layers": 2}},
    model={"w": torch.arange(4.0)},
    optimisers=[{"state": {0: {"momentum": torch.ones(2)}}}],
)


def test_a_checkpoint_comes_back_and_a_later_one_replaces_it(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    for step in (7, 8):
        save_checkpoint(directory, replace(CHECKPOINT, step=step))
        found = load_checkpoint(directory, CHECKPOINT.identity)
        assert found is not None
        assert (found.step, found.wall_seconds, found.cpu_seconds) == (step, 1.5, 2.5)
        assert torch.equal(found.model["w"], CHECKPOINT.model["w"])
        assert torch.equal(found.optimisers[0]["state"][0]["momentum"], torch.ones(2))
    assert [path.name for path in directory.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("error", [RuntimeError("PytorchStreamWriter failed"), OSError("full")])
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, CHECKPOINT)

    def full(_: object, file: IO[bytes]) -> None:
        file.write(b"a part")
        raise error

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"checkpoint.pt .*: make room and run the command again"):
        save_checkpoint(tmp_path, replace(CHECKPOINT, step=8))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    found = load_checkpoint(tmp_path, CHECKPOINT.identity)
    assert found is not None
    assert found.step == 7


def test_a_teacher_is_compared_where_both_have_one(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, replace(CHECKPOINT, identity={"teacher": "a"}))
    assert load_checkpoint(tmp_path, {}) is not None
    with pytest.raises(DraftwoodError, match="teacher 'a' there, 'b' here"):
        load_checkpoint(tmp_path, {"teacher": "b"})
    save_checkpoint(tmp_path, replace(CHECKPOINT, identity={}))
    assert load_checkpoint(tmp_path, {"teacher": "b"}) is not None


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, {}) is None


def test_another_run_is_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, CHECKPOINT)
    with pytest.raises(DraftwoodError, match="seed 1 there, 2 here"):
        load_checkpoint(tmp_path, {"seed": 2, "shape": {"layers": 2}})


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", {"step": 1}], ids=str)
def test_a_broken_file_or_another_layout_is_refused(
    tmp_path: Path, content: bytes | dict[str, int]
) -> None:
    path = tmp_path / "checkpoint.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(DraftwoodError, match="start again"):
        load_checkpoint(tmp_path, {})
