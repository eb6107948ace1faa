"""Checks that memory and disk are large enough for a model and one shard of its checkpoint."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError
from draftwood.lab.free_memory import free_memory

if TYPE_CHECKING:
    import torch

SHARD = 2 * 10**9
"""Bytes per file of a written checkpoint."""

_GIGA = 1e9


def needed(parameters: int, width: int) -> int:
    """Bytes of memory to build and write this many weights of ``width`` bytes each."""
    weights = parameters * width
    return weights + min(weights, SHARD)


def check_memory(
    parameters: int, width: int, advice: str, device: torch.device | str = "cpu"
) -> None:
    """Refuse weights that do not fit into memory.

    Args:
        parameters: number of weights.
        width: bytes per weight in memory.
        advice: end of the message: what to do instead.
        device: whose memory is meant.

    Raises:
        DraftwoodError: less memory is available than needed.
    """
    need, free = needed(parameters, width), available(device)
    if need > free:
        raise DraftwoodError(
            f"{parameters / 1e9:.2f} billion parameters of {width} bytes need about "
            f"{need / _GIGA:.1f} GB of memory and {free / _GIGA:.1f} GB are available: {advice}"
        )


def check_disk(directory: Path, parameters: int, width: int) -> None:
    """Refuse a checkpoint that does not fit into ``directory``.

    Raises:
        DraftwoodError: less space is free than needed.
    """
    need, free = parameters * width, shutil.disk_usage(directory).free
    if need > free:
        raise DraftwoodError(
            f"the weights take {need / _GIGA:.1f} GB and {directory} has {free / _GIGA:.1f} GB "
            "left: choose another place"
        )


def available(device: torch.device | str = "cpu") -> int:
    """Available bytes of memory; where that is not known, all of the machine's, an upper bound."""
    free = free_memory(device if str(device).startswith("cuda") else "cpu")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if free is None else free
