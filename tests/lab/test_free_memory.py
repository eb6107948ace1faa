"""Memory that is free on a device."""

from pathlib import Path

import pytest
import torch

from draftwood.lab import free_memory as module
from draftwood.lab.free_memory import free_memory
from draftwood.lab.inflate.room import available


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory in the place of the system's files about memory; it is empty."""
    monkeypatch.setattr(module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "_GROUP", tmp_path)
    return tmp_path


def test_memory_of_the_machine(system: Path) -> None:
    file = system / "meminfo"
    file.write_text("MemTotal:       100 kB\nMemAvailable:     60 kB\n")
    assert free_memory() == free_memory(torch.device("cpu")) == 60 * 1024
    assert free_memory(torch.device("meta")) is None
    file.write_text("MemTotal:       100 kB\n")
    assert free_memory() is None
    file.unlink()
    assert free_memory() is None
    assert available() > 10**8, "all of the memory, where it is not known how much is free"


def test_a_control_group_limits(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable: 60 kB\n")
    (system / "memory.current").write_text("700\n")
    (system / "memory.stat").write_text("anon 400\ninactive_file 200\n")
    (system / "memory.max").write_text("1000\n")
    assert free_memory() == available() == 500
    (system / "memory.max").write_text("300\n")
    assert free_memory() == available() == 0
    (system / "memory.max").write_text("max\n")
    assert free_memory() == 60 * 1024


def test_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch, system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable: 60 kB\n")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000, 2_000))
    assert free_memory("cuda:0") == available(torch.device("cuda")) == 1_000
    assert available() == 60 * 1024
