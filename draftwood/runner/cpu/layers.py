"""Runs decoder layers like Llama's by kernels: one by one, ``layers.h``, or as a stack.

With few rows, a small model spends half of a step between its products: in Python, and in PyTorch's
operations on a few kilobytes. A layer is recognised by its parts and by a test: the kernels have to
return what it does. It is in force only inside a ``with`` block, only for few rows, and only while
its parts are what they were: not replaced, not moved, without hooks.
"""

import ctypes
import logging
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from draftwood.kernels.functions import Kernels, kernels, readable
from draftwood.runner.attention import Varlen, Visibility, fused_attention
from draftwood.runner.cpu.calls import any_global_hook
from draftwood.runner.cpu.int8 import Int8Linear
from draftwood.runner.cpu.layer_list import LayerList, layer_list
from draftwood.runner.cpu.layouts import FUSED, PANELS
from draftwood.runner.cpu.norms import FusedNorm
from draftwood.runner.cpu.packing import PackedLinear
from draftwood.runner.cpu.stack import LayerStack, Passed, StackShape, changed, supported
from draftwood.runner.cpu.watched import Place, Watched, place
from draftwood.runner.decoder_layers import ATTENTION, MLP, decoder_layer
from draftwood.runner.layer_forward import LayerForward
from draftwood.runner.norm_formulas import early

logger = logging.getLogger(__name__)

MOST: Final = {torch.float32: 512, torch.bfloat16: 128}
"""Most rows for which the kernels are used; in bfloat16 they are no faster beyond."""

_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Difference from the layer's own result, over the largest change that the layer makes."""


class _Linear(ctypes.Structure):
    """``Linear`` of layers.h."""

    _fields_ = (
        ("w", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("in_panels", c_int64),
    )


class _Norm(ctypes.Structure):
    """``Norm`` of layers.h."""

    _fields_ = (("w", c_void_p), ("eps", c_double), ("early", c_int64))


class _Layer(ctypes.Structure):
    """``Layer`` of layers.h."""

    _fields_ = (
        ("openmp", c_void_p),
        *((name, _Linear) for name in ("q", "k", "v", "o", "gate", "up", "down")),
        *((name, _Norm) for name in ("first", "second", "q_norm", "k_norm")),
        ("width", c_int64),
        ("narrow", c_int64),
    )


class FusedLayers:
    """The layers of a model that the kernels run, in force inside ``with layers.reading(..):``.

    Args:
        layers: in the order of the model.
        listed: stands in for the model's list of layers, if they are all of it.

    Attributes:
        direct: whether the model calls these in place of its layers, in this forward.
        most: rows for which the kernels of all of them are used.
    """

    direct: bool = False

    def __init__(
        self, layers: "Sequence[FusedLayer]" = (), listed: LayerList | None = None
    ) -> None:
        self._hold(layers)
        self._list = listed
        self._taps: Sequence[int] = ()
        self._few = False

    def __len__(self) -> int:
        return len(self._layers)

    def refresh(self) -> None:
        """Read weights that were replaced where they are now; their linears are refreshed first."""
        if any_global_hook() or self._watched.unchanged():
            return
        refused = [layer.refused for layer in self._layers]
        layers = [*map(_read_again, self._layers)]
        lost = sum(layer.refused != r for layer, r in zip(self._layers, refused, strict=True))
        if lost:
            logger.info("%d layers run by themselves: no kernel can read their new weights", lost)
        again = sum(new is not old for new, old in zip(layers, self._layers, strict=True))
        if again:
            self._hold(layers)
            if self._list is not None:
                self._list.call(layers)
            logger.info("%d layers are fused again, as their weights were replaced", again)

    def _hold(self, layers: "Sequence[FusedLayer]") -> None:
        self._layers = layers
        self._stacks = _stacked(layers)
        self._watched = Watched.all_of([layer.watched for layer in layers])
        self.most = min((layer.most for layer in layers), default=0)

    def reading(self, taps: Sequence[int], rows: int) -> "FusedLayers":
        """These layers, for a forward of so many rows.

        ``taps``: layers, by index, whose inputs are read.
        """
        self._taps, self._few = taps, rows <= self.most
        return self

    @property
    def modules(self) -> frozenset[nn.Module]:
        """The layers and all modules inside them."""
        return frozenset(each for layer in self._layers for each in layer.module.modules())

    def take_states(self) -> list[Tensor] | None:
        """The inputs that were read, handed out once; None if the layers were not called directly.

        Raises:
            DraftwoodError: the model did not call a layer.
        """
        if self._list is None or not self.direct:
            return None
        try:
            return self._list.taken()
        except KeyError:
            raise changed() from None

    def __enter__(self) -> None:
        self.direct = False
        if any_global_hook():
            return
        unchanged, listed = self._watched.unchanged(), self._list
        same = listed is None or listed.unchanged()
        # More rows take so long that this does not matter.
        self.direct = unchanged and same and self._few and bool(listed and listed.begin(self._taps))
        if self.direct:
            for stack, _ in self._stacks:
                stack.begin(self._taps)
            return
        for layer in self._layers:
            layer.enter(unchanged=unchanged)
        for stack, members in self._stacks:
            if same and all(layer.entered and not layer.hooked for layer in members):
                stack.begin(self._taps)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._list is not None:
            self._list.end()
        if not self.direct:
            for layer in self._layers:
                layer.exit()
        ended = [stack.end() for stack, _ in self._stacks]
        if kind is None and not all(ended):
            raise changed()


def _stacked(layers: "Sequence[FusedLayer]") -> "list[tuple[LayerStack, list[FusedLayer]]]":
    """Stacks of layers of one shape that follow one another, two or more, with their members."""
    runs: list[list[FusedLayer]] = []
    for layer in layers:
        layer.stack = None
        last = runs[-1][-1] if runs else None
        if last is None or layer.shape != last.shape or layer.index != last.index + 1:
            runs.append([])
        runs[-1].append(layer)
    found = []
    for members in runs:
        if len(members) > 1 and supported(members[0].shape):
            stack = LayerStack(
                [each.address for each in members], members[0].shape, members[0].index
            )
            for place, layer in enumerate(members):
                layer.stack, layer.place = stack, place
            found.append((stack, members))
    return found


def fuse_layers(model: nn.Module) -> FusedLayers:
    """Find the layers that the kernels can run; their linears and norms are patched before."""
    compiled = kernels()
    if compiled is None:
        return FusedLayers()
    found = []
    for module in model.modules():
        parts = _parts(module)
        if parts is not None:
            layer = FusedLayer(module, parts, compiled)
            if _agrees(layer):
                found.append(layer)
    return FusedLayers(found, layer_list(model, found) if found else None)


def _read_again(layer: "FusedLayer") -> "FusedLayer":
    """A layer with its weights where they are now, if they were replaced and the kernels can."""
    places = layer.watched.moved()
    if places is None or places == layer.refused:
        return layer
    parts = _parts(layer.module)
    if parts is not None:
        found = FusedLayer(layer.module, parts, layer.kernels)
        if _agrees(found):
            return found
    layer.refused = places
    return layer


@dataclass(frozen=True)
class _Parts:
    """The parts of a layer.

    Attributes:
        linears: q, k, v, o, gate, up, down.
        norms: before the attention and before the MLP; of queries and keys, or None.
        attention: module with ``head_dim``, ``scaling`` and ``layer_idx``.
        mlp: module with the last three linears.
        activation: of the MLP.
    """

    linears: list[PackedLinear | Int8Linear]
    norms: list[FusedNorm | None]
    attention: nn.Module
    mlp: nn.Module
    activation: nn.Module


def _parts(module: nn.Module) -> _Parts | None:
    """The parts of a layer; None if it has others than Llama's or Qwen3's."""
    layer = decoder_layer(module)
    if layer is None:
        return None
    pairs = [(layer.attention, name) for name in ATTENTION] + [(layer.mlp, name) for name in MLP]
    linears = [_forward(parent._modules[name]) for parent, name in pairs]
    norms = [_forward(norm) for norm in layer.norms]
    head_norms = [_forward(norm) for norm in layer.head_norms]
    if not all(_reads_rows(each) for each in linears):
        return None
    if not all(isinstance(each, FusedNorm) for each in norms + head_norms):
        return None
    if not _readable(linears, [*norms, *head_norms]):
        return None
    every_norm = [*norms, *(head_norms or (None, None))]
    return _Parts(linears, every_norm, layer.attention, layer.mlp, layer.activation)


def _readable(linears: Sequence[PackedLinear | Int8Linear], norms: Sequence[FusedNorm]) -> bool:
    """Whether the kernels can read all parameters, which are of one dtype."""
    dtype = linears[0].dtype
    quantised = [each for each in linears if isinstance(each, Int8Linear)]
    given = [each.packed for each in linears if isinstance(each, PackedLinear)]
    for each in (*linears, *norms):
        # Past a dictionary that restores a packed weight.
        for name, parameter in dict.items(each.module._parameters):
            if parameter is not None and (name != "weight" or isinstance(each, FusedNorm)):
                given.append(parameter.data)
    return (
        dtype in MOST
        and all(each.dtype is dtype and each.unchanged() for each in quantised)
        and all(x is not None and readable(x, dtype) and x.is_contiguous() for x in given)
    )


def _forward(module: nn.Module | None) -> Any:
    """The patched ``forward`` of a module, or None."""
    return None if module is None else module.__dict__.get("forward")


def _reads_rows(linear: object) -> bool:
    """Whether a linear is multiplied by the kernels, from one row on."""
    return isinstance(linear, Int8Linear) or (
        isinstance(linear, PackedLinear)
        and linear.layout in FUSED
        and linear.low <= 1
        and not linear.copied
    )


class FusedLayer(LayerForward):
    """The ``forward`` of a decoder layer, by kernels where they can be used.

    Args:
        layer: the decoder layer.
        parts: its parts.
        compiled: the kernels.

    Attributes:
        most: rows for which the kernels are used.
        shape: its sizes and dtype.
        index: its place in the cache.
        address: of its ``Layer`` of layers.h.
        stack: of which it is a layer, and
        place: which one.
        kernels: that run it.
        refused: where its parameters were when they could not be read anew.
    """

    stack: LayerStack | None = None
    place: int = 0
    refused: tuple[Place, ...] | None = None

    def __init__(self, layer: nn.Module, parts: _Parts, compiled: Kernels) -> None:
        self.module = layer
        self.kernels = compiled
        modules = [part.module for part in (*parts.linears, *parts.norms) if part is not None]
        dtype = parts.linears[0].dtype
        self.most = min(MOST[dtype], *(linear.high - 1 for linear in parts.linears))
        children = [
            (owner._modules, name, child)
            for owner in (layer, parts.attention, parts.mlp)
            for name, child in owner._modules.items()
        ]
        # Only the layer's own forward calls these.
        uncalled = (parts.attention, parts.mlp, parts.activation)
        every = (*(child for _, _, child in children if child is not None), *modules)
        self.watched = Watched(
            children=children,
            # Its patched forward is taken off when the model is detached.
            forwards=[(module.__dict__, module.__dict__["forward"]) for module in modules]
            + [(module.__dict__, None) for module in uncalled],
            methods=[(module, type(module).forward) for module in uncalled],
            places=[
                (module._parameters, name, place(module._parameters, name))
                for module in modules
                for name in module._parameters
            ],
            hooks=[
                hooks for each in every for hooks in (each._forward_hooks, each._forward_pre_hooks)
            ],
        )
        shapes = [linear.shape for linear in parts.linears]
        (q, hidden), (kv, _), _, _, (inner, _), _, _ = shapes
        width = int(parts.attention.head_dim)  # type: ignore[arg-type]
        self._layer = _Layer(
            compiled.openmp,
            *(
                _Linear(
                    *_weight(linear),
                    place(linear.module._parameters, "bias"),
                    *shape,
                    isinstance(linear, PackedLinear) and linear.layout is PANELS,
                )
                for linear, shape in zip(parts.linears, shapes, strict=True)
            ),
            *(_norm(norm) for norm in parts.norms),
            width,
            dtype is torch.bfloat16,
        )
        self.address = ctypes.addressof(self._layer)
        # Weights of int8 are known by the parameters' identity, and their scales may be copies.
        # Panels are let go when another thread reads a weight.
        self._kept = [
            linear.packed
            if isinstance(linear, PackedLinear)
            else (linear.module._parameters["weight"], linear.weight)
            for linear in parts.linears
        ]
        self.index: int = parts.attention.layer_idx  # type: ignore[assignment]
        scale: float = parts.attention.scaling  # type: ignore[assignment]
        attention = (
            getattr(layer, "attention_type", None),
            getattr(parts.attention, "layer_type", None),
            getattr(parts.attention, "sliding_window", None),
        )
        self.shape = StackShape(hidden, q, kv, inner, width, scale, dtype, attention)

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        visibility: Any = kwargs.get("draftwood_visibility")
        stack = self.stack
        if stack is not None and position_embeddings is not None and stack.holds(hidden_states):
            passed = Passed(attention_mask, past_key_values, position_embeddings, visibility)
            return stack.handed_on(self.place, passed)
        kind = visibility.visibility if isinstance(visibility, Varlen) else visibility
        if (
            kind not in (Visibility.TREE, Visibility.OPEN, Visibility.CAUSAL)
            or past_key_values is None
            or position_embeddings is None
            or torch.is_grad_enabled()
            or hidden_states.numel() > self.most * self.shape.hidden
            or not all(self._takes(x) for x in (hidden_states, *position_embeddings))
            or position_embeddings[0].shape[-1] != self.shape.width
        ):
            return self.own(
                hidden_states,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                position_embeddings=position_embeddings,
                **kwargs,
            )
        passed = Passed(attention_mask, past_key_values, position_embeddings, visibility)
        if stack is not None:
            result = stack.computed(self.place, hidden_states, passed)
            if result is not None:
                return result
        y = self._run(hidden_states, passed)
        if stack is not None:
            stack.watch(self.place, hidden_states, y, passed)
        return y

    def _takes(self, x: Tensor) -> bool:
        return readable(x, self.shape.dtype) and x.is_contiguous()

    def _run(self, x: Tensor, passed: Passed) -> Tensor:
        b, n, hidden = x.shape
        rows, q, kv, inner = b * n, self.shape.q, self.shape.kv, self.shape.inner
        width = self.shape.width
        cos, sin = passed.factors
        # In one piece: queries, keys, values, and what the kernels write in between.
        space = x.new_empty(rows * (q + 2 * kv + hidden + 2 * inner))
        queries, keys, values, work = space.split_with_sizes(
            [rows * q, rows * kv, rows * kv, rows * (hidden + 2 * inner)]
        )
        self.kernels.before_attention(
            *(self.address, x.data_ptr(), cos.data_ptr(), sin.data_ptr()),
            cos.numel() // width,
            *(queries.data_ptr(), keys.data_ptr(), values.data_ptr(), work.data_ptr(), rows),
        )
        query, key, value = (
            each.view(b, n, -1, width).transpose(1, 2) for each in (queries, keys, values)
        )
        cache: Any = passed.cache
        key, value = cache.update(key, value, self.index)
        attended = fused_attention(
            query, key, value, passed.mask, self.shape.scale, passed.visibility
        )
        y = torch.empty_like(x)
        self.kernels.after_attention(
            *(self.address, attended.data_ptr(), x.data_ptr(), y.data_ptr(), work.data_ptr()),
            rows,
        )
        return y


def _weight(linear: PackedLinear | Int8Linear) -> tuple[Place, int | None]:
    """Addresses of a linear's weight and of its scales."""
    if isinstance(linear, Int8Linear):
        return linear.weight.numbers.data_ptr(), linear.weight.scales.data_ptr()
    assert linear.packed is not None, "callers look at it first"
    return linear.packed.data_ptr(), None


def _norm(norm: FusedNorm | None) -> _Norm:
    if norm is None:
        return _Norm(None, 0.0, 0)
    return _Norm(place(norm.module._parameters, "weight"), norm.eps, norm.formula is early)


class _OneForward:
    """A cache that holds the keys and values of one forward."""

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value


def _agrees(layer: FusedLayer) -> bool:
    """Whether the kernels compute what the layer does, for random rows and rotary factors."""
    generator = torch.Generator().manual_seed(0)
    shape, n = layer.shape, 3
    dtype, group = shape.dtype, shape.q // shape.kv

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device="cpu").to(dtype)

    x, factors = drawn(1, n, shape.hidden), (drawn(1, n, shape.width), drawn(1, n, shape.width))
    hidden = torch.full((n, n), -torch.inf, device="cpu").triu(1)
    mask = hidden.to(dtype).repeat(group, 1)[None, None]
    given: dict[str, Any] = {
        "attention_mask": mask,
        "position_embeddings": factors,
        "past_key_values": _OneForward(),
        "draftwood_visibility": Visibility.TREE,
    }
    with torch.inference_mode():
        try:
            expected = layer.own(x, **given)
        except (TypeError, RuntimeError, ValueError, AttributeError, KeyError, IndexError):
            return False
        if not isinstance(expected, Tensor) or expected.shape != x.shape:
            return False
        found = layer(x, **given)
    change = (expected - x).abs().max()
    return bool((found - expected).abs().max() <= _TOLERANCE[dtype] * change)
