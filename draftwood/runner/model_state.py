"""What the host decides in a forward of a model beside its arguments: adapters, hooks, weights.

A recorded forward repeats the decisions as they were.
"""

from collections.abc import Iterator
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
    return tuple(_own_state(module) for module in model.modules())


def changes_in_place(model: nn.Module) -> tuple[int, ...]:
    """How often each weight was changed in place; PyTorch does not count changes of ``.data``."""
    return tuple(
        0 if parameter.is_inference() else parameter._version
        for module in model.modules()
        for parameter in _own_parameters(module)
    )


def _own_state(module: nn.Module) -> tuple[Any, ...]:
    given = module.__dict__
    hooks = [key for name in _HOOKS for key, hook in given[name].items() if acts(hook)]
    adapters = tuple(repr(given[name]) for name in _OF_ADAPTERS if name in given)
    places = tuple(map(place_of, _own_parameters(module)))
    forward = given.get("forward")
    # Of a weight that was moved into another layout, the place says nothing.
    packs = getattr(forward, "packs", 0)
    return id(forward), packs, places, tuple(hooks), adapters, module.training


def _own_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of a module without those of its children."""
    # Past a dictionary that restores a packed weight.
    return filter(lambda found: found is not None, dict.values(module.__dict__["_parameters"]))
