"""Random numbers of several requests that are made at once, as on a device."""

import numpy as np
import pytest
import torch

from draftwood.sampling import device_draws
from draftwood.sampling.device_draws import exponentials_at
from draftwood.sampling.noise import RequestNoise

CPU = torch.device("cpu")
SIZE = 37


@pytest.mark.parametrize("most", [1, 3 * SIZE, 1 << 24])
def test_the_variates_are_those_of_each_request(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(device_draws, "MOST", most)
    noises = [RequestNoise(seed, position) for seed, position in ((2**64 - 1, 5), (7, 0), (7, 900))]
    depths = [[0, 2], [1], [0, 1, 5]]
    addresses = [
        [noise.address(depth) for depth in own] for noise, own in zip(noises, depths, strict=True)
    ]
    found = [*exponentials_at(addresses, SIZE, CPU)]
    assert [each.shape for each in found] == [(2, SIZE), (1, SIZE), (3, SIZE)]
    for each, noise, own in zip(found, noises, depths, strict=True):
        wanted = noise.exponentials(own, SIZE, CPU)
        np.testing.assert_allclose(each.numpy(), wanted.numpy(), rtol=1e-14)
