"""A module's ``forward``, replaced on the instance and put back."""

from functools import partial
from typing import Any


class PatchedForward:
    """The patched ``forward`` of one module. A copy or pickle of the module gets the plain one.

    Args:
        module: the module; from now on it calls this object.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._before = module.__dict__.get("forward")
        module.forward = self

    def undo(self) -> None:
        """Restore the module's own ``forward``."""
        if self._before is None:
            del self._module.forward
        else:
            self._module.forward = self._before

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (type(self._module).forward, self._module)
