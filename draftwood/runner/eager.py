"""Runs tree forwards without ``torch.compile``, where the model's forward was compiled.

Every tree forward has other shapes, so ``torch.compile`` would recompile each time. The model's own
calls stay compiled.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch
from torch import nn


def is_compiled(model: nn.Module) -> bool:
    """Whether ``torch.compile`` wraps the forward of the model or of a part of it."""
    return any(
        module._compiled_call_impl is not None
        or hasattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable")
        for module in model.modules()
    )


class _Eager:
    """Holds torch's process-wide switch until the last thread has left."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._switch: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._switch = torch.compiler.set_stance("force_eager")
                self._switch.__enter__()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._switch.__exit__(None, None, None)


eager = _Eager()


def eagerly(model: nn.Module) -> AbstractContextManager[None]:
    """A context without ``torch.compile``; it does nothing if the model is not compiled."""
    return eager() if is_compiled(model) else nullcontext()
