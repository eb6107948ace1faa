"""transformers' own functions of recurrent layers, whatever kernels are called in their place.

Where a package is installed (fla, causal-conv1d, mamba-ssm), transformers binds its kernel to the
function's name. Where the package ``kernels`` is, the name is a module whose ``forward`` calls the
function, or a kernel of the Hub instead. Our forwards call the function itself, so that they
compute the same with all of these.
"""

from collections.abc import Callable
from inspect import getclosurevars, unwrap
from types import FunctionType
from typing import Any

from torch import nn


def torch_form(function: Any, module: str) -> Callable[..., Any] | None:
    """transformers' own function behind a name that may be bound to a kernel; None: none is found.

    Args:
        function: what the name is bound to.
        module: in which it is bound, and in which the function was written.
    """
    found = _written_in(function, module)
    if found is not None or not isinstance(function, nn.Module):
        return found
    called = getclosurevars(type(function).forward).nonlocals.values()
    return next((each for each in (_written_in(one, module) for one in called) if each), None)


def _written_in(function: Any, module: str) -> FunctionType | None:
    found = unwrap(function) if callable(function) else None
    if not isinstance(found, FunctionType):
        return None
    where = found.__globals__.get("__name__", "")
    return found if where == module or where.startswith("transformers.models.") else None
