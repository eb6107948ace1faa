"""Chosen hidden states are those that a model returns if it is asked for all."""

from collections.abc import Sequence

import pytest
import torch

from draftwood.models import hidden_states
from draftwood.models.hidden_states import returned, wanted
from tests.factories.tiny_llama import tiny_llama

LAYERS = tiny_llama().config.num_hidden_layers


@pytest.mark.parametrize("states", [(1,), (LAYERS,), (0, LAYERS), (LAYERS, 1), (0, 1, LAYERS)])
def test_chosen_states_are_those_among_all(states: Sequence[int]) -> None:
    model, ids = tiny_llama(), torch.tensor([[1, 5, 2, 7]])
    with torch.no_grad():
        every = model(input_ids=ids, output_hidden_states=True).hidden_states
        found = model(input_ids=ids, output_hidden_states=wanted(states)).hidden_states
    assert len(every) == LAYERS + 1
    for state, chosen in zip(states, returned(found, states), strict=True):
        assert torch.equal(chosen, every[state])


def test_the_numbers_of_earlier_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_states, "_BY_STATE", False)
    assert wanted((2, 5)) == [1, 4]
    assert wanted((0, 5)) is True
    outputs = [torch.tensor(float(i)) for i in range(6)]
    assert [float(x) for x in returned(outputs, (2, 5))] == [1.0, 4.0]
    assert [float(x) for x in returned(outputs, (0, 5))] == [0.0, 5.0]
