"""Weights made on a GPU, here a simulated one: they and the model are there."""

import pytest
import torch

from draftwood.lab.inflate.head import head_weights
from draftwood.lab.inflate.weights import inflated
from tests.lab.inflate.tiny_heads import LARGE as HEAD_LARGE
from tests.lab.inflate.tiny_heads import head_of, target
from tests.lab.inflate.tiny_shapes import LARGE, SMALL, small_llama
from tests.simulated_cuda import SimulatedCuda

CUDA = torch.device("cuda", 0)
Generator = torch.Generator
HEAD = head_of(target(), fc_norm=True, num_hidden_layers=2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that generators were made for; all are the CPU's, which the others lack here."""
    found: list[torch.device] = []

    def generator(device: torch.device) -> torch.Generator:
        found.append(device)
        return Generator()

    monkeypatch.setattr(torch, "Generator", generator)
    return found


def test_weights_are_made_where_the_source_is(asked: list[torch.device]) -> None:
    here = {name: weight.detach() for name, weight in small_llama().state_dict().items()}
    wanted = dict(inflated(here, SMALL, LARGE, seed=2))
    with SimulatedCuda() as device:
        there = {name: weight.to("cuda") for name, weight in here.items()}
        made = dict(inflated(there, SMALL, LARGE, seed=2))
        assert {weight.device for weight in made.values()} == {CUDA}
        # The simulated device draws a CPU's numbers.
        assert all(torch.equal(weight.cpu(), wanted[name]) for name, weight in made.items())
        assert not device.work.faults
    assert asked == [torch.device("cpu"), CUDA]


def test_weights_of_a_head_are_made_where_it_is(asked: list[torch.device]) -> None:
    here = {name: tensor.detach() for name, tensor in HEAD.state_dict().items()}
    wanted = dict(head_weights(here, HEAD.config, HEAD_LARGE, seed=2))
    with SimulatedCuda():
        there = {name: tensor.to("cuda") for name, tensor in here.items()}
        made = dict(head_weights(there, HEAD.config, HEAD_LARGE, seed=2))
        assert {tensor.device for tensor in made.values()} == {CUDA}
        assert all(torch.equal(tensor.cpu(), wanted[name]) for name, tensor in made.items())
    assert asked == [torch.device("cpu"), CUDA]
