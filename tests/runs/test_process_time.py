"""CPU time of a process and of its descendants."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.process_time import cpu_seconds

TICKS = os.sysconf("SC_CLK_TCK")


def process(proc: Path, pid: int, parent: int, times: tuple[int, int, int, int]) -> None:
    columns = ["S", str(parent), *["0"] * 9, *map(str, times), "0"]
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) {' '.join(columns)}\n")


def test_descendants_count_and_others_do_not(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, (5000, 0, 0, 0))
    process(tmp_path, 7, 1, (1, 2, 30, 40))
    process(tmp_path, 8, 7, (100, 200, 0, 0))
    process(tmp_path, 9, 8, (1000, 0, 0, 0))
    process(tmp_path, 10, 1, (9000, 0, 0, 0))
    (tmp_path / "11").mkdir()  # has ended
    assert cpu_seconds(7, tmp_path) == 1373 / TICKS
    assert cpu_seconds(9, tmp_path) == 1000 / TICKS
    with pytest.raises(FileNotFoundError, match="no process 11"):
        cpu_seconds(11, tmp_path)


def ticks(seconds: float) -> int:
    return round(seconds * TICKS)


def test_of_real_processes() -> None:
    # Longer than is asked for: the kernel rounds two times down to its ticks.
    work = "import time; end = time.process_time() + .25\nwhile time.process_time() < end: pass"
    begun = cpu_seconds(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", f"{work}\nprint('done', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "done\n"
        own = cpu_seconds(started.pid)
        assert own >= 0.2
        assert ticks(cpu_seconds(os.getpid()) - begun) >= ticks(own)
        started.communicate("\n")
    assert ticks(cpu_seconds(os.getpid()) - begun) >= ticks(own), "it was waited for"
