"""A shortcut is its module in everything but the way there."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from draftwood.runner.attach import attach
from draftwood.runner.cpu.calls import find_direct_calls
from tests.factories.model_families import FAMILIES

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) + self.other(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.block(x))


class Doubled:
    """A patched forward that counts its calls; its copy is the plain forward."""

    def __init__(self, module: nn.Linear) -> None:
        self.module = module
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return 2 * nn.Linear.forward(self.module, x)


def patched() -> tuple[Model, Doubled]:
    torch.manual_seed(0)
    model = Model()
    forward = Doubled(model.block.inner)
    model.block.inner.forward = forward  # type: ignore[method-assign,assignment]
    return model, forward


def test_the_patched_forward_is_called_at_once() -> None:
    model, forward = patched()
    expected = model(X)
    direct_calls = find_direct_calls(model)
    assert len(direct_calls) == 1
    calls = forward.calls
    with direct_calls:
        assert "inner" in model.block.__dict__
        assert torch.equal(model(X), expected)
    assert forward.calls == calls + 1
    assert type(model.__dict__.get("block")) is type(None), (
        "the model's own children are left alone"
    )
    assert "other" not in model.block.__dict__, "nothing is gained without a patch"


def test_it_behaves_like_the_module() -> None:
    model, _ = patched()
    names = [name for name, _ in model.named_modules()]
    state = model.state_dict()
    inner: Any = model.block._modules["inner"]
    with find_direct_calls(model):
        found: Any = model.block.inner
        assert found is not inner
        assert isinstance(found, nn.Linear)
        assert found.weight is inner.weight
        assert (found.in_features, repr(found)) == (4, repr(inner))
        found.requires_grad_(False)
        assert not inner.weight.requires_grad
        assert [name for name, _ in model.named_modules()] == names
        assert all(module is not found for module in model.modules())
        assert model.state_dict().keys() == state.keys()
        assert model.get_submodule("block.inner").weight is found.weight


def test_hooks_that_come_later_are_called() -> None:
    model, _ = patched()
    direct_calls = find_direct_calls(model)
    seen = []
    before = model.block.inner.register_forward_pre_hook(lambda *_: seen.append("before"))
    after = model.block.inner.register_forward_hook(lambda *_: seen.append("after"))
    with direct_calls:
        model(X)
    assert seen == ["before", "after"]
    before.remove()
    after.remove()
    with direct_calls:
        model(X)
    assert len(seen) == 2


def test_a_replaced_child_is_called_itself() -> None:
    model, forward = patched()
    direct_calls = find_direct_calls(model)
    model.block.inner = nn.Linear(4, 4)
    new = model.block.inner
    calls = forward.calls
    with direct_calls:
        assert model.block.inner is new
        model(X)
    with direct_calls:
        model.block.inner = nn.Linear(4, 4)
        model(X)
    assert forward.calls == calls
    assert model.block.inner is model.block._modules["inner"]


def test_the_parent_is_unchanged_afterwards() -> None:
    model, _ = patched()
    before = dict(model.block.__dict__)
    direct_calls = find_direct_calls(model)
    assert model.block.__dict__ == before
    with direct_calls:
        assert model.block.__dict__ != before
    assert model.block.__dict__ == before
    with pytest.raises(RuntimeError, match="shapes"), direct_calls:
        model(X.T)
    assert model.block.__dict__ == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_stand_alone(duplicate: Any) -> None:
    model = FAMILIES["llama"]()
    runner = attach(model)
    layer = model.model.layers[0]
    with find_direct_calls(model):
        assert "input_layernorm" in layer.__dict__
        twin = duplicate(model)
    own = twin.model.layers[0]
    assert own.input_layernorm is own._modules["input_layernorm"]
    assert own.input_layernorm is not layer._modules["input_layernorm"]
    with torch.no_grad():
        own.input_layernorm.weight.fill_(0.5)
    assert (layer.input_layernorm.weight == 1).all()
    runner.detach()
