"""Memory that is free on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes that are free: a GPU's, or the machine's or its control group's, whichever is less.

    None if it is not known: on other devices, and where there is no Linux.
    """
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        import torch

        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    if kind != "cpu":
        return None
    known = (each for each in (_machine(), _control_group()) if each is not None)
    return min(known, default=None)


def _machine() -> int | None:
    try:
        text = _MEMINFO.read_text(encoding="ascii")
        lines = dict(line.split(":", 1) for line in text.splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # only Linux has the file
        return None


def _control_group() -> int | None:
    """Bytes that the control group has left; None without a group or a limit."""
    try:
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        # The page cache counts as used, but is freed when memory is needed.
        files = int(dict(line.split() for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or the limit is "max"
        return None
    return max(limit - used + files, 0)
