"""Straight ways from a module to its patched children, past the machinery of a module's call.

``self.q_proj(x)`` finds the child through ``nn.Module.__getattr__`` and then passes two wrappers
that look for hooks, which costs a small model on a CPU as much as its smallest layers. An entry of
the child's name in the parent's ``__dict__`` is found first and calls the patched ``forward`` at
once. The entry passes for the child in everything else: type, attributes, hooks, copies; and
``modules()``, ``state_dict`` and the child itself do not know of it. The entries are there only
inside a ``with`` block, because ``torch.compile`` cannot trace through them. Knows nothing of
models.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


class Shortcuts:
    """The shortcuts of one model, in force inside ``with shortcuts:``."""

    def __init__(self, members: Sequence[tuple[nn.Module, str, "_Shortcut"]] = ()) -> None:
        self._members = [(p.__dict__, p._modules, name, way) for p, name, way in members]

    def __len__(self) -> int:
        return len(self._members)

    def __enter__(self) -> None:
        for entries, children, name, shortcut in self._members:
            # A child that was replaced meanwhile takes its place.
            if children.get(name) is shortcut._module:
                entries[name] = shortcut

    def __exit__(self, *_: object) -> None:
        for entries, _children, name, shortcut in self._members:
            if entries.get(name) is shortcut:
                del entries[name]


def shorten(model: nn.Module) -> Shortcuts:
    """Make straight ways from every module to those of its children whose ``forward`` is patched.

    The model's own children are left alone: they are called once, and others ask for them.
    """
    members = []
    for parent in model.modules():
        if parent is model:
            continue
        for name, child in parent._modules.items():
            if child is not None and "forward" in child.__dict__ and name not in parent.__dict__:
                members.append((parent, name, _Shortcut(child, child.__dict__["forward"])))
    return Shortcuts(members)


class _Shortcut:
    """Calls a module's patched ``forward``; a copy or pickle of it is the module itself."""

    __slots__ = ("_after", "_before", "_forward", "_module")

    def __init__(self, module: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        # Past the __setattr__ below. Hooks may still come: these dictionaries are the module's own.
        for name, value in (
            ("_module", module),
            ("_forward", forward),
            ("_before", module._forward_pre_hooks),
            ("_after", module._forward_hooks),
        ):
            object.__setattr__(self, name, value)

    def __call__(self, x: torch.Tensor) -> Any:
        if self._before or self._after:
            return self._module(x)
        return self._forward(x)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The module's: it is what ``isinstance`` asks about."""
        return type(self._module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)

    def __repr__(self) -> str:
        return repr(self._module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._module,)


def _itself(module: nn.Module) -> nn.Module:
    return module
