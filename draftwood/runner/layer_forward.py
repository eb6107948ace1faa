"""The ``forward`` of a decoder layer, replaced while the layer is what it was."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from draftwood.runner.cpu.watched import Watched, acting


class LayerForward:
    """Stands in for the ``forward`` of a decoder layer from :meth:`enter` to :meth:`exit`.

    Attributes:
        module: the decoder layer.
        watched: what has to stay as it was.
        entered: whether the layer calls this object.
    """

    __call__: Callable[..., Any]
    module: nn.Module
    watched: Watched
    entered: bool = False

    def enter(self, *, unchanged: bool = False) -> None:
        """Have the layer call this object, if its parts are what they were.

        ``unchanged``: they are.
        """
        self.entered = "forward" not in self.module.__dict__ and (
            unchanged or self.watched.unchanged()
        )
        if self.entered:
            self.module.__dict__["forward"] = self

    def exit(self) -> None:
        """Have the layer call its own ``forward``."""
        if self.module.__dict__.get("forward") is self:
            del self.module.__dict__["forward"]

    @property
    def hooked(self) -> bool:
        """Whether a hook of the layer itself may do something."""
        before, after = self.module._forward_pre_hooks, self.module._forward_hooks
        return bool(before or after) and (acting(before) or acting(after))

    def own(self, hidden_states: Tensor, **given: Any) -> Any:
        """What the layer's own ``forward`` returns."""
        return type(self.module).forward(self.module, hidden_states, **given)
