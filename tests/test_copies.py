"""Numbers reach the device as they were written, and buffers take turns."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from draftwood.copies import Staging
from tests.simulated_cuda import SimulatedCuda

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def device() -> Iterator[SimulatedCuda]:
    with SimulatedCuda() as found:
        yield found


def sent(staging: Staging, rng: np.random.Generator, sizes: tuple[int, ...]) -> None:
    """Write numbers in two portions, send them and compare."""
    total = sum(sizes)
    numbers = rng.integers(-(1 << 40), 1 << 40, total)
    staging.begin(total // 2)[:] = numbers[: total // 2]
    room = staging.room(total)
    assert np.array_equal(room[: total // 2], numbers[: total // 2])
    room[total // 2 :] = numbers[total // 2 :]
    found = staging.send(sizes)
    assert [len(part) for part in found] == list(sizes)
    assert [n for part in found for n in part.tolist()] == numbers.tolist()


SIZES = [(3, 3), (0, 5, 2), (300, 1), (3, 3), (2000, 30), (7,)]


def test_numbers_arrive_on_a_cpu() -> None:
    rng, staging = np.random.default_rng(0), Staging(CPU)
    for sizes in SIZES:
        sent(staging, rng, sizes)


def test_numbers_arrive_on_a_device(device: SimulatedCuda) -> None:
    rng, staging = np.random.default_rng(0), Staging(CUDA)
    device.work.clear()
    for sizes in SIZES:
        sent(staging, rng, sizes)
    assert not device.work.faults


def test_a_buffer_is_not_written_while_it_is_uploaded(device: SimulatedCuda) -> None:
    """Four uploads that nobody waits for, as of the chunks of a prompt."""
    staging, parts = Staging(CUDA), []
    device.work.clear()
    for turn in range(4):
        staging.begin(8)[:] = turn
        (found,) = staging.send((8,))
        parts.append(found.clone())
    assert device.work.uploads.total() == 4
    # Two buffers: the third upload waits for the first one, the fourth for the second.
    assert device.work.waits.total() == 2
    torch.cuda.synchronize()
    assert not device.work.faults
    assert [part.tolist() for part in parts] == [[turn] * 8 for turn in range(4)]


def test_without_turns_it_would_be_a_fault(device: SimulatedCuda) -> None:
    staging = Staging(CUDA)
    staging._events, staging._buffers = [None], staging._buffers[:1]
    staging.begin(8)[:] = 1
    staging.send((8,))
    staging._events = [None]
    staging.begin(8)[:] = 2
    torch.cuda.synchronize()
    assert [fault for fault in device.work.faults if "written while it is uploaded" in fault]


def test_few_splits_are_kept() -> None:
    staging = Staging(CPU)
    for size in range(2000):
        staging.begin(8)
        staging.send((size % 9, size % 7, size % 5, size % 11))
    assert len(staging._views) <= 512
