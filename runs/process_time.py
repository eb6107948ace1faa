"""CPU time of a process and of those that it has started, from /proc (Linux)."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_PARENT, _TIMES = 1, slice(11, 15)
"""Columns of /proc/PID/stat behind the name (proc_pid_stat(5)); times: own ones, and those of the
children that it has waited for."""


def cpu_seconds(pid: int, proc: Path = Path("/proc")) -> float:
    """CPU seconds of a process and of all its descendants.

    Those of a descendant that has ended are those of a process that has waited for it.

    Raises:
        FileNotFoundError: there is no such process, or no /proc.
    """
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for found in proc.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            # A name may hold spaces and brackets.
            columns = found.read_text().rpartition(")")[2].split()
            number = int(found.parent.name)
            children[int(columns[_PARENT])].append(number)
            ticks[number] = sum(map(int, columns[_TIMES]))
    if pid not in ticks:
        raise FileNotFoundError(f"{proc} shows no process {pid}")
    whole, left = 0, [pid]
    while left:
        number = left.pop()
        whole += ticks[number]
        left += children[number]
    return whole / os.sysconf("SC_CLK_TCK")
