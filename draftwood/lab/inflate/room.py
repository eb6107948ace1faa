"""Checks that memory and disk are large enough for a model and one shard of its checkpoint."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    import torch

SHARD = 2 * 10**9
"""Bytes per file of a written checkpoint."""

_GROUP = Path("/sys/fs/cgroup")
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


def available(device: torch.device | str = "cpu") -> float:
    """Available bytes of memory: a GPU's, the machine's, or the control group's if less."""
    if str(device).startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return min(_machine(), _control_group())


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(":")
            if key == "MemAvailable":
                return int(value.split()[0]) * 1024
    except OSError:
        pass  # only Linux has the file
    # Elsewhere all of the memory, which is an upper bound.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _control_group() -> float:
    try:
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        # The page cache counts as used, but is freed when memory is needed.
        files = int(dict(line.split() for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or the limit is "max"
        return float("inf")
    return max(limit - used + files, 0)
