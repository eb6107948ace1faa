"""Peaks of memory, of this process and from made-up proc files."""

from mmap import PAGESIZE, mmap
from pathlib import Path

import pytest
import torch

from draftwood.lab.bench.memory import MIB, peak_memory

CPU = torch.device("cpu")


def proc(
    at: Path, status: str | None = "Name:\tx\nVmHWM:\t    3072 kB\nVmRSS:\t 1024 kB\n"
) -> Path:
    (at / "clear_refs").write_text("")
    if status is not None:
        (at / "status").write_text(status)
    return at


def test_the_mark_is_set_back_before_and_read_after_the_block(tmp_path: Path) -> None:
    process = proc(tmp_path)
    with peak_memory(CPU, process) as peak:
        assert (process / "clear_refs").read_text() == "5"
        (process / "status").write_text("VmHWM:\t 10240 kB\n")
    assert peak.mb == 10.0


def test_it_is_unknown_where_the_mark_cannot_be_set_back(tmp_path: Path) -> None:
    with peak_memory(CPU, tmp_path) as peak:
        pass
    assert peak.mb is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "status", "written"),
    [("cpu", None, "5"), ("cpu", "Name:\tx\n", "5"), ("meta", "VmHWM:\t 3072 kB\n", "")],
)
def test_it_is_unknown_where_neither_torch_nor_the_kernel_tells(
    tmp_path: Path, device: str, status: str | None, written: str
) -> None:
    process = proc(tmp_path, status)
    with peak_memory(torch.device(device), process) as peak:
        pass
    assert peak.mb is None
    assert (process / "clear_refs").read_text() == written


def test_a_block_that_raises_leaves_it_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), peak_memory(CPU, proc(tmp_path)) as peak:
        raise ValueError("no")
    assert peak.mb is None


def test_what_a_block_held_at_its_most_is_seen_and_forgotten_by_the_next() -> None:
    with peak_memory(CPU) as before:
        pass
    if before.mb is None:
        pytest.skip("this machine does not let a process set its mark back")
    # Mapped and unmapped here: what malloc frees may stay resident.
    with peak_memory(CPU) as during, mmap(-1, 128 * MIB) as block:
        block[::PAGESIZE] = bytes(len(block) // PAGESIZE)
    with peak_memory(CPU) as after:
        pass
    assert after.mb is not None
    assert during.mb is not None
    assert during.mb - before.mb > 100
    assert during.mb - after.mb > 100


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_allocators_peak_is_told() -> None:
    device = torch.device("cuda")
    kept = torch.ones(2**20, device=device)
    with peak_memory(device) as peak:
        assert torch.ones(2**24, device=device).numel() == 2**24  # 64 MiB
    with peak_memory(device) as after:
        assert kept.numel() == 2**20
    assert peak.mb is not None
    assert after.mb is not None
    assert 64 <= peak.mb - after.mb < 80
