"""The forms in which an engine takes its method and its target."""

from typing import Any, Protocol

import torch

from draftwood import methods
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.protocols import Target
from draftwood.runner.attach import runner_of


class Makes(Protocol):
    """Anything that carries a method, such as what ``draftwood.goose()`` returns."""

    @property
    def method(self) -> Method: ...


def method_of(given: object) -> Method:
    """The method, from its name or from an object that carries one.

    Raises:
        DraftwoodError: it is neither, or there is no such method.
    """
    found = methods.method(given) if isinstance(given, str) else getattr(given, "method", given)
    if not isinstance(found, Method):
        raise DraftwoodError(
            f"a method cannot be {type(given).__name__}: give its name, such as 'auto', or what "
            "draftwood.method or draftwood.auto() returns"
        )
    return found


def target_of(given: Any) -> Target:
    """The target, from a model of transformers, which is attached, or from an attached one.

    Raises:
        DraftwoodError: it is neither, or trees cannot be run on it.
    """
    if isinstance(given, torch.nn.Module):
        return runner_of(given)
    if not hasattr(given, "info"):
        raise DraftwoodError(
            f"an engine decodes with a model, and this is {type(given).__name__}: give one of "
            "transformers, or use draftwood.Engine.load(NAME)"
        )
    target: Target = given
    return target
