"""What a recorded forward depends on, beside what hooks and adapters of test_static show."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.utils import output_capturing

from draftwood.runner.cpu.layouts import TRANSPOSED, LayoutChoice
from draftwood.runner.cpu.packing import pack
from draftwood.runner.model_state import changes_in_place, model_state


def test_a_replaced_quantised_weight_is_another_state() -> None:
    """Such a weight is put together from others, and has no address of its own."""
    torchao = pytest.importorskip("torchao.quantization")
    model: Any = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    before = model_state(model)
    assert model_state(model) == before
    model[0].weight = model[1].weight
    assert model_state(model) != before


def test_hooks_with_which_transformers_reads_layers_are_no_other_state() -> None:
    model = nn.Sequential(nn.Linear(4, 4))

    def capture(*_: Any) -> None: ...

    capture.__module__ = output_capturing.__name__
    before = model_state(model)
    model[0].register_forward_hook(capture)
    assert model_state(model) == before
    model[0].register_forward_hook(lambda *_: None)
    assert model_state(model) != before


def test_looking_does_not_restore_packed_weights() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 4))
    packed = pack(model, lambda weights: [LayoutChoice(TRANSPOSED, 0, 1 << 40) for _ in weights])
    assert [each._moved for each in packed] == [True, True]
    before = model_state(model), changes_in_place(model)
    assert (model_state(model), changes_in_place(model)) == before
    assert [each._moved for each in packed] == [True, True]
    list(model.parameters())
    assert [each._moved for each in packed] == [False, False], "which reading does"


def test_another_weight_in_the_place_of_a_packed_one_is_another_state() -> None:
    """Wherever the placeholder of the packed weight is."""
    model: Any = nn.Sequential(nn.Linear(8, 6))
    [packed] = pack(model, lambda weights: [LayoutChoice(TRANSPOSED, 0, 1 << 40) for _ in weights])
    before = model_state(model)
    model[0].weight.data = torch.ones(6, 8)
    packed.refresh()
    assert packed._moved
    assert model_state(model) != before


def test_a_change_in_place_is_counted_for_its_weight() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    state, (*before, bias) = model_state(model), changes_in_place(model)
    with torch.no_grad():
        model[1].bias.add_(1)
    assert model_state(model) == state
    assert changes_in_place(model) == (*before, bias + 1)
