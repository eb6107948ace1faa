"""The tensor operations give the numbers of NumPy's Philox, on the CPU and on a device."""

import numpy as np
import pytest
import torch

from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.philox import exponentials, philox, signed
from tests.simulated_cuda import SimulatedCuda

CPU = torch.device("cpu")
SEEDS = (0, 1, 2**63 + 11, 2**64 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_those_of_numpy(seed: int) -> None:
    for position in (0, 3, 2**31 + 7, 2**40):
        bits = np.random.Philox(
            key=np.array([seed, 0], dtype=np.uint64),
            counter=np.array([0, 0, position, 0], dtype=np.uint64),
        )
        expected = bits.random_raw(40).astype(np.int64)
        blocks = torch.arange(1, 11)[None]
        key = torch.tensor([[signed(seed)]])
        words = philox(blocks, torch.tensor([[position]]), key)
        assert words.shape == (1, 10, 4)
        assert words.flatten().tolist() == expected.tolist()


@pytest.mark.parametrize("size", [1, 4, 50, 1023])
def test_exponentials_are_those_of_a_request(size: int) -> None:
    noises = [RequestNoise(seed, position) for seed in SEEDS for position in (0, 99)]
    expected = torch.cat([noise.exponentials([2], size, CPU) for noise in noises])
    seeds, positions = zip(*(noise.address(2) for noise in noises), strict=True)
    found = exponentials(torch.tensor([*map(signed, seeds)]), torch.tensor(positions), size)
    assert found.shape == (8, size)
    assert torch.allclose(found, expected, rtol=1e-14, atol=0)


def test_a_device_draws_without_uploading_numbers() -> None:
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0))
    with SimulatedCuda() as device:
        there = weights.to("cuda")
        device.work.clear()
        found = [RequestNoise(5, position).choose(1, there) for position in range(20)]
        assert not device.work.uploads.total()
    assert found == [RequestNoise(5, position).choose(1, weights) for position in range(20)]
    assert len(set(found)) > 10
