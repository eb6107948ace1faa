"""How much memory and disk there is, and whether a model fits.

Estimates: weights, and one shard of the checkpoint that is being written. Knows no model.
"""

import os
import shutil
from pathlib import Path

from draftwood.errors import DraftwoodError

SHARD = 2 * 10**9
"""Bytes of one file of a written checkpoint."""

_GROUP = Path("/sys/fs/cgroup")
_GIGA = 1e9


def needed(parameters: int, width: int) -> int:
    """Bytes of memory to build and write this many weights of ``width`` bytes each."""
    weights = parameters * width
    return weights + min(weights, SHARD)


def check_memory(parameters: int, width: int, advice: str) -> None:
    """Refuse what would not fit into memory.

    Args:
        parameters: number of weights.
        width: bytes of each while they are in memory.
        advice: what to do instead, the end of the sentence.

    Raises:
        DraftwoodError: less is available than needed; says both.
    """
    need, free = needed(parameters, width), available()
    if need > free:
        raise DraftwoodError(
            f"{parameters / 1e9:.2f} billion parameters of {width} bytes need about "
            f"{need / _GIGA:.1f} GB of memory and {free / _GIGA:.1f} GB are available: {advice}"
        )


def check_disk(directory: Path, parameters: int, width: int) -> None:
    """Refuse a checkpoint for which ``directory`` has no room.

    Raises:
        DraftwoodError: less is free than needed; says both.
    """
    need, free = parameters * width, shutil.disk_usage(directory).free
    if need > free:
        raise DraftwoodError(
            f"the weights take {need / _GIGA:.1f} GB and {directory} has {free / _GIGA:.1f} GB "
            "left: choose another place"
        )


def available() -> float:
    """Bytes of memory that can still be had: the machine's, or the control group's if less."""
    return min(_machine(), _control_group())


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(":")
            if key == "MemAvailable":
                return int(value.split()[0]) * 1024
    except OSError:
        pass  # only Linux has the file
    # Elsewhere all of the memory: too much, but the order of magnitude is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _control_group() -> float:
    try:
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        # Files that were read count as used, and are given up when memory is wanted.
        files = int(dict(line.split() for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or the limit is "max"
        return float("inf")
    return max(limit - used + files, 0)
