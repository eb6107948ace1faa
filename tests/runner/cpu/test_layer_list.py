"""The stand-in for a model's list of layers."""

from typing import Any

import pytest
import torch
from torch import nn

from draftwood.errors import DraftwoodError
from draftwood.kernels.compiled import _command
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.attach import attach
from draftwood.runner.cpu.layer_list import LayerList, layer_list
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.runner import Runner
from draftwood.tree import tree_of
from tests.factories.tiny_llama import tiny_llama

pytestmark = [
    pytest.mark.skipif(_command() is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("rows_layout"),
]

NODES = tree_of([5, 7, 9], [-1, 0, 0])


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each forward of few rows, whether the list's place was taken."""
    found: list[bool] = []
    begin = LayerList.begin

    def noted(self: LayerList, taps: Any) -> bool:
        done = begin(self, taps)
        found.append(done)
        return done

    monkeypatch.setattr(LayerList, "begin", noted)
    return found


def runner() -> tuple[Any, Runner, int]:
    model: Any = tiny_llama(layers=4, head_dim=16)
    attached = attach(model)
    slot = attached.open(40)
    attached.prefill([slot], [[1, 2, 3]], Needs())
    return model, attached, slot


def scored(attached: Runner, slot: int, taps: tuple[int, ...] = ()) -> TargetOutput:
    [found] = attached.forward([slot], [NODES], Needs(taps=taps))
    return found


def test_the_list_is_the_models_own_again_after_a_forward(taken: list[bool]) -> None:
    model, attached, slot = runner()
    own = model.model.layers
    scored(attached, slot)
    assert taken[-1]
    assert model.model.layers is own
    assert "layers" not in model.model.__dict__


def test_a_state_behind_the_last_layer_is_read_by_transformers(taken: list[bool]) -> None:
    _, attached, slot = runner()
    both, first = scored(attached, slot, (2, 4)), scored(attached, slot, (2,))
    assert taken[-2:] == [False, True]
    assert both.features is not None
    assert first.features is not None
    assert torch.equal(both.features[:, : first.features.shape[1]], first.features)


def test_a_layer_that_was_replaced_is_called(taken: list[bool]) -> None:
    model, attached, slot = runner()
    before = scored(attached, slot).logits
    count = len(taken)
    kept = model.model.layers[1]

    class Twice(nn.Module):
        def forward(self, hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
            return 2 * kept(hidden_states, **given)  # type: ignore[no-any-return]

    model.model.layers[1] = Twice()
    assert not torch.allclose(scored(attached, slot).logits, before, atol=1e-3)
    model.model.layers[1] = kept
    assert torch.equal(scored(attached, slot).logits, before)
    assert taken[count:] == [True], "the first time something else was in the list"


def test_a_hook_that_comes_during_a_forward_is_no_silent_loss(taken: list[bool]) -> None:
    """The layers are computed before it comes, so that it is an error and no other result."""
    model, attached, slot = runner()
    before = scored(attached, slot).logits
    handles = []

    def steer(*_: Any) -> None:
        hook = model.model.layers[1].register_forward_hook(lambda _m, _a, output: 2 * output)
        handles.append(hook)

    steering = model.model.register_forward_pre_hook(steer)
    with pytest.raises(DraftwoodError, match="no longer hands what a decoder layer returns"):
        scored(attached, slot)
    assert taken[-1], "the hook was not there when the forward began"
    steering.remove()
    assert not torch.allclose(scored(attached, slot).logits, before, atol=1e-3), "it is heard"
    handles[0].remove()
    assert torch.equal(scored(attached, slot).logits, before)


def test_a_plain_call_meanwhile_is_that_of_the_model() -> None:
    """As of another thread: nothing of it is noted, and it gets its own hidden states."""
    model: Any = tiny_llama(layers=3, head_dim=16)
    layers = attach(model)._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        expected = model(ids, output_hidden_states=True)
        with layers.reading((1,), 3):
            assert layers.direct
            found = model(ids, output_hidden_states=True)
            with pytest.raises(DraftwoodError, match="no longer hands"):
                layers.take_states()
    assert torch.equal(found.logits, expected.logits)
    assert len(found.hidden_states) == len(expected.hidden_states) == 4
    for own, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert torch.equal(own, other)


def test_a_layer_more_is_called(taken: list[bool]) -> None:
    model, attached, slot = runner()
    before = scored(attached, slot).logits
    del taken[:-1]
    model.model.layers.append(Doubled())
    model.config.num_hidden_layers += 1
    doubled = scored(attached, slot).logits
    assert taken == [True], "of the first forward"
    assert not torch.allclose(doubled, before, atol=1e-3)


class Doubled(nn.Module):
    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        return hidden_states + 1.0


def test_members_have_the_attributes_of_their_layers() -> None:
    model: Any = tiny_llama(layers=2, head_dim=16)
    layers = attach(model)._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    model.model.layers[1].attention_type = "full_attention"
    with layers.reading((1,), 3):
        assert layers.direct
        assert isinstance(model.model.layers, list)
        assert model.model.layers[1].attention_type == "full_attention"
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = model.model.layers[0].no_such_thing
    with layers.reading((), 1000):
        assert not layers.direct, "of many rows"


def test_a_list_of_other_layers_is_left_alone() -> None:
    model: Any = tiny_llama(layers=3, head_dim=16)
    layers = attach(model)._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    assert layer_list(model, layers._layers) is not None
    assert layer_list(model, layers._layers[:2]) is None
    assert layer_list(nn.Module(), layers._layers) is None
