"""Runs consecutive fused layers, attention and cache included, in one call, ``stack.h``.

A model calls its layers one by one. The first layer of a stack computes what the last one returns,
and the others pass it on. That is right only if the model hands each layer what the one before
returned, and nothing else that changes from layer to layer. So the first forward runs layer by
layer, and watches.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from draftwood.errors import DraftwoodError
from draftwood.kernels.compiled import VARIABLE
from draftwood.kernels.functions import kernels
from draftwood.runner.attention import Varlen, Visibility
from draftwood.runner.cpu.attention import (
    LANES,
    WIDEST,
    Attention,
    addresses_of,
    readable_rows,
)
from draftwood.runner.row_cache import RowCache


class _Stack(ctypes.Structure):
    """``Stack`` of stack.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("layers", "keys", "values")),
        ("count", c_int64),
        *((name, c_void_p) for name in ("x", "cos", "sin", "ys", "work")),
        ("rows", c_int64),
        ("period", c_int64),
        ("entries", c_void_p),
        ("shift", c_int64),
        ("attention", Attention),
    )


class Passed(NamedTuple):
    """What a layer is called with, beside its hidden states.

    Attributes:
        mask: of the attention.
        cache: of keys and values.
        factors: rotary cosines and sines, ``[1, n, width]``.
        visibility: how queries see keys.
    """

    mask: Tensor | None
    cache: object
    factors: tuple[Tensor, Tensor]
    visibility: Visibility | Varlen

    def same(self, other: "Passed") -> bool:
        """Whether the other's are the same objects."""
        return (
            self.mask is other.mask
            and self.cache is other.cache
            and self.factors[0] is other.factors[0]
            and self.factors[1] is other.factors[1]
            and self.visibility is other.visibility
        )


@dataclass(frozen=True)
class StackShape:
    """Sizes that the layers of a stack share.

    Attributes:
        hidden: of the hidden states.
        q: of the queries of all heads.
        kv: of the keys, or values, of all heads.
        inner: of the MLP.
        width: of a head.
        scale: of attention scores.
        dtype: of weights and hidden states.
        attention: what tells kinds of attention apart, which get different masks.
    """

    hidden: int
    q: int
    kv: int
    inner: int
    width: int
    scale: float
    dtype: torch.dtype
    attention: object


class LayerStack:
    """Consecutive layers of a model, run in one call.

    Args:
        layers: address of each layer's ``Layer`` of layers.h.
        shape: of all of them.
        first: index of the first one in the cache.

    Attributes:
        active: whether the stack is in force in the present forward.
        proven: whether the model hands on what a layer returns; None: it is not known yet.
    """

    def __init__(self, layers: Sequence[int], shape: StackShape, first: int) -> None:
        compiled = kernels()
        assert compiled is not None, "layers are fused by kernels"
        self._kernels, self._shape, self._first = compiled, shape, first
        self._layers = (c_void_p * len(layers))(*layers)
        self._read: list[int] = []
        self._pointed: tuple[RowCache, int] | None = None  # whose entries ``_cached`` points to
        # Of what was computed in advance: the last layer that was called; by place, the outputs
        # that are read and the last one; what the last call returned; what all are called with.
        self._place = 0
        self._results: dict[int, Tensor] = {}
        self._returned: Tensor | None = None
        self._passed: Passed | None = None
        # While nothing is proven: the last layer called, its output, a copy, its arguments.
        self._seen: tuple[int, Tensor, Tensor, Passed] | None = None
        self.active = False
        self.proven: bool | None = None

    def begin(self, taps: Sequence[int]) -> None:
        """Take part in a forward, in which the inputs of some layers, by index, are read."""
        self.active = True
        places = (tap - self._first - 1 for tap in taps)
        self._read = [place for place in places if 0 <= place < len(self._layers)]
        self._forget()

    def end(self) -> bool:
        """End the forward; returns whether the model called all layers that were computed."""
        left = self._left
        self.active = False
        self._forget()
        return not left

    def _forget(self) -> None:
        self._results, self._returned, self._passed, self._seen = {}, None, None, None

    @property
    def _left(self) -> bool:
        """Whether the model has still to call layers that were computed."""
        return self._returned is not None and self._place + 1 < len(self._layers)

    def holds(self, x: Tensor) -> bool:
        """Whether x is what a layer has returned while the model has still to call the next one."""
        return x is self._returned and self._left

    def handed_on(self, place: int, passed: Passed) -> Tensor:
        """What a layer returns, once the model calls it with what the one before returned.

        The layers whose outputs are not read return another one's.

        Raises:
            DraftwoodError: this is another layer than the next one, or it is given something else.
        """
        assert self._returned is not None
        assert self._passed is not None
        if place != self._place + 1 or not passed.same(self._passed):
            raise changed()
        self._place = place
        self._returned = self._results.get(place, self._returned)
        return self._returned

    def computed(self, place: int, x: Tensor, passed: Passed) -> Tensor | None:
        """Compute all layers, and return what the first one returns.

        None if the layer at this place is to run by itself.

        Raises:
            DraftwoodError: the layer's result was computed before, from other hidden states.
        """
        if not self.active or not self.proven:
            return None
        if self._left:
            raise changed()
        if place or not self._compute(x, passed):
            return None
        self._place, self._passed = 0, passed
        last = len(self._layers) - 1
        self._returned = self._results.get(0, self._results[last])
        return self._returned

    def watch(self, place: int, x: Tensor, y: Tensor, passed: Passed) -> None:
        """Note what a layer was given and returned, to learn whether they are handed on."""
        if not self.active or self.proven is not None:
            return
        seen = self._seen
        self._seen = None
        if place > 0:
            if seen is None or seen[0] != place - 1:
                return
            _, before, copy, others = seen
            if x is not before or not torch.equal(x, copy) or not passed.same(others):
                self.proven = False
                return
        if place + 1 == len(self._layers):
            self.proven = True
        else:
            self._seen = place, y, y.clone(), passed

    def _compute(self, x: Tensor, passed: Passed) -> bool:
        """Compute the layers' results; False if the kernel cannot."""
        shape, cache, visibility = self._shape, passed.cache, passed.visibility
        if not isinstance(cache, RowCache) or len(x) != 1:
            return False
        kind, batch = visibility, 1
        sequences = addresses_of(in_order=kind is Visibility.CAUSAL)
        if isinstance(visibility, Varlen):
            kind, batch = visibility.visibility, len(visibility.counts)
            if visibility.places is not None or min(visibility.lengths) < 1:
                return False
            sequences = visibility.sequences.addresses
        mask = passed.mask if kind is Visibility.TREE else None
        if kind is Visibility.TREE and (mask is None or not readable_rows(mask, shape.dtype)):
            return False
        if (cache, cache.generation) != self._pointed and not self._point(cache):
            return False
        rows, entries = x.shape[1], cache.entries()
        layers = len(self._layers)
        results = {place: torch.empty_like(x) for place in (*self._read, layers - 1)}
        outputs = (c_void_p * layers)()
        for place, result in results.items():
            outputs[place] = result.data_ptr()
        work = x.new_empty(rows * (2 * (shape.q + shape.kv + shape.inner) + 3 * shape.hidden))
        each, apart = cache.stride * shape.kv, cache.apart
        places = None if apart is None else (c_int64 * batch)(*apart)
        cos, sin = passed.factors
        call = _Stack(
            *map(ctypes.addressof, (self._layers, *self._cached)),
            layers,
            *(tensor.data_ptr() for tensor in (x, cos, sin)),
            ctypes.addressof(outputs),
            work.data_ptr(),
            rows,
            cos.numel() // shape.width,
            entries.ctypes.data,
            cache.first_row * each if places is None else 0,
            Attention(
                self._kernels.openmp,
                *(None, None, None),
                None if mask is None else mask.data_ptr(),
                None,
                *(batch, shape.q // shape.width, shape.kv // shape.width, rows),
                *(cache.get_seq_length(), shape.width),
                *(rows * shape.q, shape.width, shape.q),
                *(each, shape.width, shape.kv) * 2,
                *((0, 0) if mask is None else (mask.stride(0), mask.stride(2))),
                shape.scale,
                shape.dtype is torch.bfloat16,
                *sequences,
                None if places is None else ctypes.addressof(places),
            ),
        )
        self._kernels.stack(ctypes.addressof(call))
        self._results = results
        return True

    def _point(self, cache: RowCache) -> bool:
        """Find the layers' keys and values in the cache; False if they are not as expected."""
        self._pointed, shape = None, self._shape
        pairs = [cache.flat(self._first + i) for i in range(len(self._layers))]
        for tensor in (each for pair in pairs for each in pair):
            if tensor.dtype is not shape.dtype or tensor.shape[2] != shape.width:
                return False
            if tensor.shape[1] * shape.width != shape.kv or not tensor.is_contiguous():
                return False
        self._cached = [
            (c_void_p * len(pairs))(*(tensor.data_ptr() for tensor in tensors))
            for tensors in zip(*pairs, strict=True)
        ]
        self._pointed = cache, cache.generation
        return True


def supported(shape: StackShape) -> bool:
    """Whether the attention kernel takes heads of this shape."""
    return shape.width % LANES == 0 and shape.width <= WIDEST and shape.q % shape.kv == 0


def changed() -> DraftwoodError:
    """The error of a model that does something else than it did when its stack was proven."""
    return DraftwoodError(
        "the model no longer hands what a decoder layer returns to the next one, which was "
        f"computed in advance: set {VARIABLE}=off, so that layers run one by one"
    )
