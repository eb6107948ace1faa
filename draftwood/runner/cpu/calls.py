"""Direct calls of patched child modules, without the overhead of ``nn.Module.__call__``.

``self.q_proj(x)`` finds the child through ``nn.Module.__getattr__`` and passes two wrappers that
look for hooks. On a CPU this costs a small model as much as its smallest layers. Python looks into
the parent's ``__dict__`` first, so an object there with the child's name calls the patched
``forward`` at once. The object behaves like the child: type, attributes, hooks, copies. Neither
``modules()`` nor ``state_dict`` sees it. It exists only inside a ``with`` block, because
``torch.compile`` cannot trace through it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from draftwood.runner.patched import PatchedForward

any_global_hook: Callable[[], bool] = _has_any_global_hook
"""Whether a hook was registered for all modules, which calls past ``nn.Module`` would miss."""


class DirectCalls:
    """The direct calls of one model, in force inside ``with direct_calls:``."""

    def __init__(self, members: Sequence[tuple[nn.Module, str, "_DirectCall"]] = ()) -> None:
        self._given = members
        self._members = [(p.__dict__, p._modules, name, call) for p, name, call in members]

    def __len__(self) -> int:
        return len(self._members)

    def without(self, parents: Collection[nn.Module]) -> "DirectCalls":
        """The direct calls of other modules' children than these."""
        return DirectCalls([member for member in self._given if member[0] not in parents])

    def __enter__(self) -> None:
        if any_global_hook():
            return
        for attributes, children, name, call in self._members:
            # Not for a child that was replaced since, or whose ``forward`` was.
            if children.get(name) is call._module and call.unchanged():
                attributes[name] = call

    def __exit__(self, *_: object) -> None:
        for attributes, _children, name, call in self._members:
            if attributes.get(name) is call:
                del attributes[name]


def find_direct_calls(model: nn.Module) -> DirectCalls:
    """Find all modules whose child has a ``forward`` that Draftwood patched.

    One that somebody else replaced may take other arguments. The model's own children are left out:
    they are called once, and callers read them.
    """
    members = []
    for parent in model.modules():
        if parent is model:
            continue
        for name, child in parent._modules.items():
            forward: Any = None if child is None else child.__dict__.get("forward")
            patched = isinstance(forward, PatchedForward)
            if child is not None and patched and name not in parent.__dict__:
                members.append((parent, name, _DirectCall(child, forward)))
    return DirectCalls(members)


class _DirectCall:
    """Calls a module's patched ``forward``. Its copy or pickle is the module itself."""

    __slots__ = ("_after", "_before", "_forward", "_module")

    def __init__(self, module: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        # Bypasses __setattr__ below. Later hooks are seen: the dictionaries are the module's own.
        for name, value in (
            ("_module", module),
            ("_forward", forward),
            ("_before", module._forward_pre_hooks),
            ("_after", module._forward_hooks),
        ):
            object.__setattr__(self, name, value)

    def unchanged(self) -> bool:
        """Whether the module's ``forward`` is the one it had."""
        return self._module.__dict__.get("forward") is self._forward

    def __call__(self, x: torch.Tensor) -> Any:
        if self._before or self._after:
            return self._module(x)
        return self._forward(x)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The module's class, for ``isinstance``."""
        return type(self._module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)

    def __repr__(self) -> str:
        return repr(self._module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self._module,)


def _identity(module: nn.Module) -> nn.Module:
    return module
