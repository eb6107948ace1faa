"""Training state on disk: written whole or not at all, and read without running any code."""

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
    """Where a run stands.

    Attributes:
        step: updates made.
        wall_seconds: time spent on them, pauses included.
        cpu_seconds: processor time spent on them.
        identity: what must agree for the run to go on, as JSON values by name.
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
    """Write ``checkpoint`` to ``directory``; a stop on the way leaves the one before."""
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{_FILE}.partial"
    torch.save(vars(checkpoint), partial)
    os.replace(partial, directory / _FILE)


def load_checkpoint(directory: Path, identity: Mapping[str, Any]) -> Checkpoint | None:
    """Read the checkpoint in ``directory``, None where there is none.

    Raises DraftwoodError where it cannot be read or belongs to another run, naming
    what differs from ``identity``.
    """
    path = directory / _FILE
    if not path.is_file():
        return None
    try:
        checkpoint = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        raise DraftwoodError(
            f"{path} is not a checkpoint of this version; move it away to start afresh."
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
