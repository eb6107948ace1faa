"""Training checkpoints: written whole or not at all, loaded without running code."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftwood.errors import DraftwoodError

_FILE = "checkpoint.pt"


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
    """

    step: int
    wall_seconds: float
    cpu_seconds: float
    identity: dict[str, Any]
    model: dict[str, Any]
    optimisers: list[dict[str, Any]]


def save_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` to ``directory``; if interrupted, the previous one remains."""
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{_FILE}.partial"
    with partial.open("wb") as file:
        torch.save(vars(checkpoint), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, directory / _FILE)


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
    ]
    if differing:
        raise DraftwoodError(
            f"{path} belongs to another run ({'; '.join(differing)}); "
            "use its settings or another --out."
        )
    return checkpoint
