"""What the host decides in a forward of a model beside its arguments: adapters, hooks, weights.

A recorded forward repeats the decisions as they were.
"""

from typing import Any

from torch import nn

from draftwood.runner.cpu.watched import acts, place_of

_OF_ADAPTERS = ("_disable_adapters", "_active_adapter", "merged_adapters", "scaling")
"""Attributes of PEFT's layers that a forward reads."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def model_state(model: nn.Module) -> tuple[Any, ...]:
    """A value that differs if a forward may do something else.

    Weights that are changed in place, where they are, do not count: a recorded forward reads them.
    """
    weights = tuple(map(place_of, model.parameters()))
    return weights, *(_own_state(module) for module in model.modules())


def weights_version(model: nn.Module) -> tuple[Any, ...]:
    """A value that differs if a forward may compute something else of the same tokens.

    That is :func:`model_state`, and how often each weight was changed in place. Changes through
    ``.data`` are not counted by PyTorch.
    """
    changes = tuple(0 if p.is_inference() else p._version for p in model.parameters())
    return *model_state(model), changes


def _own_state(module: nn.Module) -> tuple[Any, ...]:
    given = module.__dict__
    hooks = [key for name in _HOOKS for key, hook in given[name].items() if acts(hook)]
    adapters = tuple(repr(given[name]) for name in _OF_ADAPTERS if name in given)
    return id(given.get("forward")), tuple(hooks), adapters, module.training
