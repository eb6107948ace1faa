"""Kernels that transformers calls for recurrent layers: our forwards call its own functions."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
import torch
from torch import nn

from draftwood import Engine, Request
from draftwood.errors import DraftwoodError
from draftwood.runner.attach import attach
from draftwood.runner.recurrent.mixers import CALLED, find_mixers
from draftwood.runner.recurrent.torch_forms import torch_form
from tests.factories.hybrid_families import FEW, HYBRIDS
from tests.factories.path_logits import greedy_tokens

IDS = [5, 9, 13, 7, 22, 5, 9]
Function = Callable[..., Any]


def of_a_package(plain: Function, count: Function) -> Function:
    """As transformers binds the kernel of an installed package."""

    def kernel(*given: Any, **named: Any) -> Any:
        count()
        return plain(*given, **named)

    return wraps(plain)(kernel)


def of_the_hub(func: Function, count: Function) -> nn.Module:
    """As the package ``kernels`` binds a function, and puts a kernel in its place."""

    class Func(nn.Module):
        def forward(self, *given: Any, **named: Any) -> Any:
            return func(*given, **named)

    def kernel(*given: Any, **named: Any) -> Any:
        count()
        return func(*given, **named)

    bound = Func()
    bound.forward = kernel  # type: ignore[method-assign]
    return bound


def module_of(model: Any) -> Any:
    """The module of transformers in which a model's recurrent layers are written."""
    return sys.modules[type(find_mixers(model)[0].module).__module__]


@pytest.mark.parametrize("bind", [of_a_package, of_the_hub])
@pytest.mark.parametrize("name", FEW)
def test_kernels_are_called_by_the_model_alone(
    name: str, bind: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HYBRIDS[name]()
    wanted = greedy_tokens(model, torch.tensor([IDS]), 12)[len(IDS) :]
    calls: list[int] = []
    module = module_of(model)
    bound = CALLED & vars(module).keys()
    assert bound
    for each in bound:
        kernel = bind(getattr(module, each), lambda: calls.append(1))
        monkeypatch.setattr(module, each, kernel)
    runner = attach(model)
    assert calls, "the self-test's references are the model's own"
    calls.clear()
    [found] = Engine(runner, "goose:budget=8").generate([Request(IDS, 12, eos=())])
    assert list(found.tokens) == wanted
    assert not calls
    assert greedy_tokens(model, torch.tensor([IDS]), 4)[len(IDS) :] == wanted[:4]
    assert calls
    runner.detach()


def test_what_leads_to_no_function_of_transformers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = HYBRIDS["qwen3_5_text"]()
    module = module_of(model)
    monkeypatch.setattr(module, "causal_conv1d_fn", torch.nn.functional.conv1d)
    with pytest.raises(DraftwoodError, match=r"whose causal_conv1d_fn is not .* transformers \d"):
        attach(model)
    assert not any("forward" in each.__dict__ for each in model.modules())


def test_functions_are_found_behind_what_is_bound() -> None:
    def plain() -> None: ...

    other = "somewhere.else"
    assert torch_form(plain, __name__) is plain
    assert torch_form(of_a_package(plain, plain), __name__) is plain
    assert torch_form(of_the_hub(of_a_package(plain, plain), plain), __name__) is plain
    assert torch_form(plain, other) is None
    assert torch_form(of_the_hub(plain, plain), other) is None
    assert torch_form(nn.Identity(), other) is None
    assert torch_form(None, __name__) is None
