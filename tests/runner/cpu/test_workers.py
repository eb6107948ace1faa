"""The OpenMP workers of a thread."""

import threading
from pathlib import Path

import pytest
import torch

from draftwood.kernels import functions
from draftwood.kernels.functions import kernels
from draftwood.runner.cpu.workers import end_workers

TASKS = Path("/proc/self/task")


def computed() -> torch.Tensor:
    """A product that is large enough for all threads."""
    return torch.ones(512, 512) @ torch.ones(512, 512)


@pytest.mark.skipif(kernels() is None or not TASKS.exists(), reason="needs Linux and GNU's OpenMP")
def test_workers_end_and_are_made_anew() -> None:
    counts: list[int] = []

    def counted() -> None:
        torch.set_num_threads(2)
        alone = len(list(TASKS.iterdir()))
        computed()
        counts.append(len(list(TASKS.iterdir())) - alone)
        assert end_workers()
        counts.append(len(list(TASKS.iterdir())) - alone)
        assert computed()[0, 0] == 512.0
        counts.append(len(list(TASKS.iterdir())) - alone)

    before = torch.get_num_threads()
    thread = threading.Thread(target=counted)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    assert counts == [1, 0, 1]


def test_an_openmp_that_cannot_end_them_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(functions, "_TORCH", tmp_path / "libtorch_cpu.dylib")
    assert not end_workers()
