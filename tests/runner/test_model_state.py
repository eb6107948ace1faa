"""What a recorded forward depends on, beside what hooks and adapters of test_static show."""

from typing import Any

import pytest
from torch import nn
from transformers.utils import output_capturing

from draftwood.runner.model_state import model_state


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
