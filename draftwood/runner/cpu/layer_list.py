"""A stand-in for a model's list of decoder layers, whose members are called directly.

A model takes a slice of its ``nn.ModuleList`` in every forward and calls each member through
``nn.Module.__call__``. Where a stack has computed all layers in one call, that is most of what is
left of a step outside of the kernels. A plain list of what stands for the layers takes no time. It
also notes the hidden states that are read, for which transformers puts a hook on every layer.
The list is in the model only inside a ``with`` block (:mod:`draftwood.runner.cpu.calls`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from draftwood.runner.cpu.watched import Watched
from draftwood.runner.layer_forward import LayerForward


class LayerList:
    """Stands in for the list of layers of one model, from :meth:`begin` to :meth:`end`.

    Args:
        owner: the module whose list it is.
        name: of the list there.
        layers: what stands for each layer, callable as it is.

    Attributes:
        taps: layers, by index, whose inputs are noted.
        states: hidden states that entered these layers in this forward, by index.
    """

    def __init__(self, owner: nn.Module, name: str, layers: Sequence[LayerForward]) -> None:
        self._attributes, self._name = owner.__dict__, name
        self.states: dict[int, Tensor] = {}
        self.taps: Sequence[int] = ()
        self.call(layers)
        modules: nn.ModuleList = owner._modules[name]  # type: ignore[assignment]
        children = [(modules._modules, key, layer) for key, layer in modules._modules.items()]
        hooks: list[Mapping[int, Any]] = [
            hooks for layer in modules for hooks in (layer._forward_hooks, layer._forward_pre_hooks)
        ]
        self._watched = Watched(
            children=[(owner._modules, name, modules), *children],
            forwards=[(layer.__dict__, None) for layer in modules],
            methods=[(layer, type(layer).forward) for layer in modules],
            places=[],
            hooks=hooks,
        )
        self._modules, self._count = modules._modules, len(children)

    def call(self, layers: Sequence[LayerForward]) -> None:
        """Have these stand for the layers from now on."""
        self._members = [_Member(layer, self, index) for index, layer in enumerate(layers)]

    def unchanged(self) -> bool:
        """Whether the list holds the layers that it held, and they are called as they were."""
        return (
            self._name not in self._attributes
            and len(self._modules) == self._count
            and self._watched.unchanged()
        )

    def begin(self, taps: Sequence[int]) -> bool:
        """Take the list's place; False if a hidden state behind the last layer is read.

        Args:
            taps: layers, by index, whose inputs are noted.
        """
        if any(tap >= self._count for tap in taps):
            return False
        self.taps = taps
        self.states.clear()
        self._attributes[self._name] = self._members
        return True

    def taken(self) -> list[Tensor]:
        """The noted states, in the order of :attr:`taps`; they are kept no longer.

        Raises:
            KeyError: the model did not call one of these layers.
        """
        found = [self.states[tap] for tap in self.taps]
        self.states.clear()
        return found

    def end(self) -> None:
        """Leave the list as it was."""
        if self._attributes.get(self._name) is self._members:
            del self._attributes[self._name]


class _Member:
    """Calls what stands for a layer, whose attributes it has: models read some of them.

    It calls the layer itself in a forward that is not the engine's, as of another thread, and where
    a hook came during the forward. If the layers are computed by then, that ends in an error.
    """

    def __init__(self, layer: LayerForward, listed: LayerList, index: int) -> None:
        self._layer, self._list, self._index = layer, listed, index

    def __call__(self, hidden_states: Tensor, *given: Any, **named: Any) -> Any:
        layer = self._layer
        if "draftwood_visibility" not in named:
            return layer.module(hidden_states, *given, **named)
        if self._index in self._list.taps:
            self._list.states[self._index] = hidden_states
        call = layer.module if layer.hooked else layer
        return call(hidden_states, *given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer.module, name)


def layer_list(model: nn.Module, layers: Sequence[LayerForward]) -> LayerList | None:
    """The stand-in for the model's list that holds these layers and no others, or None.

    Args:
        model: with the list at any depth.
        layers: what stands for the layers, in the order in which they are to be called.
    """
    modules = [layer.module for layer in layers]
    attentions: list[Any] = [getattr(module, "self_attn", None) for module in modules]
    # Hidden states are asked for by the place of a layer in the model.
    if [getattr(each, "layer_idx", None) for each in attentions] != list(range(len(modules))):
        return None
    for owner in model.modules():
        for name, child in owner._modules.items():
            if type(child) is nn.ModuleList and [*child] == modules:
                return LayerList(owner, name, layers)
    return None
