"""Training checkpoints: written whole or not at all, loaded without running code."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftwood.errors import DraftwoodError, first_line

_FILE = "checkpoint.pt"
# Facts that older checkpoints lack, or that a run without a teacher has not.
_OPTIONAL = ("teacher",)


@dataclass(frozen=True)
class Checkpoint:
    """State of a training run.

    Attributes:
        step: number of updates.
        wall_seconds: wall time of the updates.
        cpu_seconds: processor time of the updates.
        identity: settings and data that must be equal when the run is resumed, as JSON values.
        model: the model's state dict, float32.
        optimisers: the optimisers' state dicts.
        decay_from: update at which the rates begin to fall; None in older checkpoints.
    """

    step: int
    wall_seconds: float
    cpu_seconds: float
    identity: dict[str, Any]
    model: dict[str, Any]
    optimisers: list[dict[str, Any]]
    decay_from: int | None = None


def save_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` to ``directory``; if that fails, the previous one remains.

    Raises:
        OSError: it cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{_FILE}.partial"
    try:
        with partial.open("wb") as file:
            torch.save(vars(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, directory / _FILE)
    except (OSError, RuntimeError) as error:  # torch's own for a full disk
        raise OSError(
            f"cannot write {directory / _FILE} ({first_line(error)}): make room and run the "
            "command again; it resumes at the checkpoint before, if there is one"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(directory: Path, identity: Mapping[str, Any]) -> Checkpoint | None:
    """Read the checkpoint in ``directory``; None if there is none.

    Raises:
        DraftwoodError: it cannot be read, or belongs to a run with another ``identity``.
    """
    path = directory / _FILE
    if not path.is_file():
        return None
    try:
        checkpoint = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        raise DraftwoodError(
            f"{path} is not a checkpoint of this version; move it away to start again."
        ) from error
    wanted: dict[str, Any] = json.loads(json.dumps(identity))
    differing = [
        f"{name} {checkpoint.identity.get(name)!r} there, {wanted.get(name)!r} here"
        for name in sorted(wanted.keys() | checkpoint.identity.keys())
        if wanted.get(name) != checkpoint.identity.get(name)
        and not (name in _OPTIONAL and None in (wanted.get(name), checkpoint.identity.get(name)))
    ]
    if differing:
        raise DraftwoodError(
            f"{path} belongs to another run ({'; '.join(differing)}); "
            "use its settings or another --out."
        )
    return checkpoint
