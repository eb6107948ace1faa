"""Compiled models decode: their own calls stay compiled, and tree steps run eagerly."""

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import draftwood
from draftwood.runner.cpu.layouts import ROWS, TRANSPOSED, LayoutChoice, layouts
from draftwood.runner.cpu.packing import PackedLinear, pack
from draftwood.runner.eager import eagerly, is_compiled
from tests.factories.model_families import FAMILIES
from tests.factories.path_logits import greedy_tokens

IDS = torch.tensor([[5, 17, 44, 5, 17, 30]])


USED = [layout for layout in layouts() if layout in (TRANSPOSED, ROWS)]


@pytest.fixture(autouse=True, params=USED, ids=lambda layout: layout.name)
def everything_packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = LayoutChoice(request.param)

    def always(model: Any, *_: Any) -> list[PackedLinear]:
        return pack(model, lambda weights: [choice] * len(weights))

    monkeypatch.setattr("draftwood.runner.attach.pack", always)
    torch._dynamo.reset()


def generated(model: Any, **settings: Any) -> list[int]:
    return greedy_tokens(model, IDS, 12, **settings)


def by_attribute(model: Any, backend: Any) -> None:
    model.forward = torch.compile(model.forward, backend=backend)


def in_place(model: Any, backend: Any) -> None:
    model.compile(backend=backend)


def by_layer(model: Any, backend: Any) -> None:
    for layer in model.model.layers:
        layer.compile(backend=backend)


@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compiled", [by_attribute, in_place, by_layer])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model_decodes_as_an_uncompiled_one(
    compiled: Any, when: str, traced: bool
) -> None:
    """If ``traced``, the model's own calls are compiled too, which takes seconds."""
    model = FAMILIES["llama"]()
    expected = generated(model)
    if when == "after":
        assert generated(model, custom_generate=draftwood.goose()) == expected
    counter = CompileCounter()
    assert not is_compiled(model)
    compiled(model, counter)
    assert is_compiled(model)
    assert generated(model, custom_generate=draftwood.goose()) == expected
    assert counter.frame_count == 0, "tree steps are not compiled"
    if traced:
        assert generated(model) == expected
        assert counter.frame_count > 0, "the model's own calls are"
    draftwood.detach(model)
    if traced:
        assert generated(model) == expected


@pytest.mark.slow
def test_a_compiled_wrapper_decodes_as_an_uncompiled_one() -> None:
    model = FAMILIES["llama"]()
    expected = generated(model)
    counter = CompileCounter()
    wrapper: Any = torch.compile(model, backend=counter)
    assert generated(wrapper, custom_generate=draftwood.goose()) == expected
    with torch.no_grad():
        logits = wrapper(IDS).logits
    assert counter.frame_count > 0
    assert int(logits[0, -1].argmax()) == expected[IDS.shape[1]]
    draftwood.detach(model)


def test_the_switch_is_released_by_the_last_user() -> None:
    counter = CompileCounter()
    model = FAMILIES["llama"]().model.layers[0].mlp
    model.compile(backend=counter)
    x = torch.ones(1, 2, 32)
    with eagerly(model):
        with eagerly(model):
            model(x)
        model(x)
        assert counter.frame_count == 0
    model(x)
    assert counter.frame_count == 1
