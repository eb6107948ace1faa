"""A direct call behaves like a call of the module."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from draftwood.integrations.transformers import custom_generate
from draftwood.runner.attach import attach
from draftwood.runner.cpu.calls import find_direct_calls
from draftwood.runner.patched import PatchedForward
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


class Doubled(PatchedForward):
    """A patched forward that counts its calls; its copy is the plain forward."""

    def __init__(self, module: nn.Linear) -> None:
        super().__init__(module)
        self.module = module
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return 2 * nn.Linear.forward(self.module, x)


@pytest.fixture
def forward() -> Doubled:
    """The patched forward of the inner module of a model's block."""
    torch.manual_seed(0)
    return Doubled(Model().block.inner)


@pytest.fixture
def model(forward: Doubled) -> Model:
    made = Model()
    made.block.inner = forward.module
    return made


def test_the_patched_forward_is_called_at_once(model: Model, forward: Doubled) -> None:
    expected = model(X)
    before = dict(model.block.__dict__)
    direct_calls = find_direct_calls(model)
    assert len(direct_calls) == 1
    calls = forward.calls
    with direct_calls:
        assert torch.equal(model(X), expected)
        assert "inner" in model.block.__dict__
        assert "other" not in model.block.__dict__, "nothing is gained without a patch"
        assert "block" not in model.__dict__, "the model's own children are left alone"
    assert forward.calls == calls + 1
    assert model.block.__dict__ == before
    with pytest.raises(RuntimeError, match="shapes"), direct_calls:
        model(X.T)
    assert model.block.__dict__ == before


def test_it_behaves_like_the_module(model: Model, forward: Doubled) -> None:
    names = [name for name, _ in model.named_modules()]
    state, inner = model.state_dict(), forward.module
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


def test_hooks_that_come_later_are_called(model: Model, forward: Doubled) -> None:
    direct_calls = find_direct_calls(model)
    seen: list[str] = []
    before = forward.module.register_forward_pre_hook(lambda *_: seen.append("before"))
    after = forward.module.register_forward_hook(lambda *_: seen.append("after"))
    with direct_calls:
        model(X)
        before.remove()
        after.remove()
        model(X)
    assert seen == ["before", "after"]


def test_hooks_for_all_modules_are_called(model: Model, forward: Doubled) -> None:
    direct_calls, called = find_direct_calls(model), list[nn.Module]()
    handle = register_module_forward_hook(lambda module, *_: called.append(module))
    try:
        with direct_calls:
            model(X)
    finally:
        handle.remove()
    assert forward.module in called


def test_a_replaced_child_is_called_itself(model: Model, forward: Doubled) -> None:
    direct_calls = find_direct_calls(model)
    with direct_calls:
        model.block.inner = nn.Linear(4, 4)
        model(X)
    with direct_calls:
        assert model.block.inner is model.block._modules["inner"]
        model(X)
    assert forward.calls == 0


def tripled(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


def test_a_forward_that_is_replaced_later_is_called(model: Model, forward: Doubled) -> None:
    direct_calls = find_direct_calls(model)
    forward.module.forward = tripled  # type: ignore[method-assign,assignment]
    with direct_calls:
        assert torch.equal(model.block(X), 3 * X + model.block.other(X))
    forward.module.forward = forward  # type: ignore[method-assign,assignment]
    with direct_calls:
        model(X)
    assert forward.calls == 1


def test_a_forward_of_somebody_else_is_called_as_the_module_calls_it(model: Model) -> None:
    model.block.other.forward = tripled  # type: ignore[method-assign,assignment]
    assert len(find_direct_calls(model)) == 1


def steered(module: nn.Module) -> Any:
    """A replacement of a module's ``forward`` that returns something else."""
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        found = inner(*args, **kwargs)
        return (1.5 * found[0], *found[1:]) if isinstance(found, tuple) else 1.5 * found

    return forward


@pytest.mark.parametrize("name", ["self_attn", "mlp.down_proj", "input_layernorm"])
@pytest.mark.parametrize("attached_before", [True, False])
def test_a_method_decodes_what_a_wrapped_model_does(name: str, attached_before: bool) -> None:
    model, plain = FAMILIES["llama"](), FAMILIES["llama"]()
    for each in (model, plain):
        if each is model and attached_before:
            attach(each)
        module = each.model.layers[1].get_submodule(name)
        module.forward = steered(module)
    settings: Any = {"max_new_tokens": 24, "eos_token_id": None, "pad_token_id": 0}
    prompt = torch.tensor([[5, 17, 8, 33, 5, 17]])
    expected = plain.generate(prompt, do_sample=False, **settings)
    found = model.generate(
        prompt, do_sample=False, custom_generate=custom_generate("goose"), **settings
    )
    assert found.tolist() == expected.tolist()
    assert found.tolist() == model.generate(prompt, do_sample=False, **settings).tolist()


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
