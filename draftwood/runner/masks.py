"""Additive attention masks for a batch of trees, built once per forward for all layers.

A node sees its sequence's prefix, its ancestors and itself, within the layer's window or chunk.
Distances are counted in *depth*, never in cache entries. On a CPU the masks are written where the
attention reads them; :mod:`draftwood.runner.device_masks` builds those of other devices.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import Visibility
from draftwood.tree import TokenTree, ancestors

Masks: TypeAlias = "torch.Tensor | MasksByKind"


class MaskPlan(Protocol):
    """The masks of one forward, as far as the host knows them."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """What the masks are built from, to be uploaded."""
        ...

    @property
    def in_order(self) -> Sequence[bool]:
        """Which sequences see the keys up to their own and have no mask; empty: none."""
        ...

    def build(self, numbers: torch.Tensor) -> Masks:
        """The masks, given the same numbers on the device."""
        ...


class MaskBuilder(Protocol):
    """Makes the masks of a model's forwards."""

    @property
    def padded(self) -> bool:
        """Whether masks of a batch are for queries padded to the longest sequence."""
        ...

    def build(
        self, lengths: Sequence[int], trees: Sequence[TokenTree], done: Sequence[int]
    ) -> tuple[Visibility, MaskPlan]:
        """Masks ``[b, 1, rows, kv]`` of one forward over ``b`` trees.

        The first ``done[i]`` nodes of tree ``i`` are cached, the others are the queries. The mask
        of a sequence is in its first rows and columns; what the others hold says nothing.
        """
        ...

    def chunk(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[Visibility, MaskPlan]:
        """Masks of a prefill chunk: ``counts[i]`` consecutive tokens from ``starts[i]`` on."""
        ...

    def causal(self, starts: Sequence[int], counts: Sequence[int]) -> bool:
        """Whether such a chunk begins its texts, and no key is out of its reach."""
        ...


@dataclass(frozen=True, eq=False)
class ReadyMasks:
    """Masks that are there already.

    Attributes:
        masks: as models take them.
        in_order: see :class:`MaskPlan`.
        numbers: none.
    """

    masks: Masks
    in_order: Sequence[bool] = ()
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def build(self, numbers: torch.Tensor) -> Masks:  # noqa: ARG002
        """See :class:`MaskPlan`."""
        return self.masks


_REACHES = {
    "full_attention": (None, None),
    "sliding_attention": ("sliding_window", None),
    "chunked_attention": (None, "attention_chunk_size"),
}
_CPU = torch.device("cpu")
_FEWEST_KEYS = 1 << 8
"""Keys for which there is room in a mask on a CPU at least."""
_TIMES, _SMALL = 4, 1 << 23
"""Elements of such a mask at most, relative to what is asked for, and a number that may be kept."""
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True)
class LayerKind:
    """One kind of attention layer.

    Attributes:
        name: the layer type, as in the model's config.
        window: keys at a distance of ``window`` positions or more are hidden; None: no window.
        chunk: keys outside the query's block of ``chunk`` positions are hidden; None: no chunks.
    """

    name: str
    window: int | None = None
    chunk: int | None = None

    @property
    def reach(self) -> float:
        """The first position that may not see all positions before it."""
        return min(self.window or np.inf, self.chunk or np.inf)

    def hidden(self, queries: Any, keys: Any) -> Any:
        """Mask of the keys out of reach, given positions as arrays or tensors that broadcast."""
        hidden = keys < -1
        if self.window is not None:
            hidden = hidden | (keys <= queries - self.window)
        if self.chunk is not None:
            hidden = hidden | (keys // self.chunk != queries // self.chunk)
        return hidden


def attend_only(types: Iterable[str]) -> bool:
    """Whether layers of these types keep keys and values only."""
    return set(types) <= _REACHES.keys()


def layer_kinds(config: Any, *, recurrent: bool = False) -> tuple[LayerKind, ...]:
    """The kinds of attention layers that a text config describes.

    ``recurrent``: layers of other types are recurrent ones that can be served, or have no state.

    Raises:
        DraftwoodError: some layers keep a state that is not keys and values.
    """
    types = getattr(config, "layer_types", None)
    if types:
        names = list(dict.fromkeys(types))
    elif getattr(config, "sliding_window", None) is not None:
        names = ["sliding_attention"]
    elif getattr(config, "attention_chunk_size", None) is not None:
        names = ["chunked_attention"]
    else:
        names = ["full_attention"]
    kinds = []
    if recurrent:
        both = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}
        named = dict.fromkeys(both.get(name, name) for name in names)
        names = [name for name in named if name in _REACHES] or ["full_attention"]
    for name in names:
        if name not in _REACHES:
            raise DraftwoodError(
                f"layers of type {name!r} keep a state that cannot branch into a tree; decode "
                "this model without draftwood"
            )
        window, chunk = (None if field is None else getattr(config, field, None)
                         for field in _REACHES[name])  # fmt: skip
        kinds.append(LayerKind(name, window, chunk))
    return tuple(kinds)


class MasksByKind(dict[str, torch.Tensor]):
    """Masks by kind of layer. Models ask for those of layers without attention too: None."""

    def __missing__(self, kind: str) -> Any:
        return None


def one_or_all(masks: dict[str, torch.Tensor]) -> Masks:
    """The masks as models take them: by kind of layer if there are several kinds."""
    return MasksByKind(masks) if len(masks) > 1 else next(iter(masks.values()))


def unmasked(kinds: Sequence[LayerKind], dtype: torch.dtype, device: torch.device) -> ReadyMasks:
    """A mask of the right rank, for attention that needs none."""
    mask = torch.zeros(1, 1, 1, 1, dtype=dtype, device=device)
    return ReadyMasks(one_or_all({kind.name: mask for kind in kinds}))


def hidden_in_chunk(kind: LayerKind, starts: torch.Tensor, q: int, kv: int) -> torch.Tensor:
    """Keys ``[b, q, kv]`` that ``q`` consecutive tokens from ``starts`` ``[b]`` on do not see."""
    keys = torch.arange(kv, device=starts.device)
    at = (starts[:, None] + torch.arange(q, device=starts.device))[:, :, None]
    found: torch.Tensor = (keys > at) | kind.hidden(at, keys)
    return found


class TreeMasks:
    """Masks of trees and prompts on a CPU; :meth:`build` writes only what changes.

    Args:
        kinds: the model's kinds of layers.
        group: query heads per key head, g; the most of all layers, others read the first rows.
        dtype: the model's; a hidden key gets minus infinity.

    Attributes:
        reach: tokens of the longest text in which every token sees all before it.
    """

    #: Each sequence attends by itself.
    padded = False

    def __init__(self, kinds: tuple[LayerKind, ...], group: int, dtype: torch.dtype) -> None:
        self._kinds = kinds
        self._group = group
        self._dtype = dtype
        self.reach = min(kind.reach for kind in kinds)
        bits = _BITS[dtype.itemsize]
        self._bits = bits
        as_int = getattr(torch, np.dtype(bits).name)
        self._hide: Any = bits(
            torch.tensor(-torch.inf, dtype=dtype, device=_CPU).view(as_int).item()
        )
        self._shape = (0, 0, 0)
        self._planes: dict[LayerKind | None, tuple[torch.Tensor, NDArray[Any]]] = {}
        self._dirty: list[tuple[int, int, int]] = []
        self._unmasked = unmasked(kinds, dtype, _CPU)

    def build(
        self,
        lengths: Sequence[int],
        trees: Sequence[TokenTree],
        done: Sequence[int],
    ) -> tuple[Visibility, MaskPlan]:
        """See :class:`MaskBuilder`."""
        b = len(trees)
        ends = [length + len(tree) for length, tree in zip(lengths, trees, strict=True)]
        counts = [len(tree) - first for tree, first in zip(trees, done, strict=True)]
        in_order = [
            end <= self.reach and tree.depth == tree.drafted
            for end, tree in zip(ends, trees, strict=True)
        ]
        if all(in_order):
            alone = max(counts) == 1
            return Visibility.OPEN if alone else Visibility.CAUSAL, self._unmasked
        masked = [i for i in range(b) if not in_order[i]]
        # Sequences in order read no mask, however long they are.
        rows, kv = self._group * max(counts[i] for i in masked), max(ends[i] for i in masked)
        self._reserve(b, rows, kv)
        bits = self._planes[None][1]
        for i in masked:
            self._write_full(i, bits[i], lengths[i], trees[i], done[i], kv)
        shown = self._view(None, b, rows, kv)
        deepest = max(lengths[i] + trees[i].depth for i in masked)
        masks = {}
        for kind in self._kinds:
            if deepest < kind.reach:
                masks[kind.name] = shown
            else:
                limited = self._planes[kind][1]
                for i in masked:
                    full = bits[i, : counts[i], :kv]
                    self._write_reach(kind, limited[i], full, lengths[i], trees[i], done[i])
                masks[kind.name] = self._view(kind, b, rows, kv)
        return Visibility.TREE, ReadyMasks(one_or_all(masks), in_order if any(in_order) else ())

    def chunk(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[Visibility, MaskPlan]:
        """See :class:`MaskBuilder`."""
        q, kv = max(counts), max(map(add, starts, counts))
        if kv <= self.reach:
            return Visibility.CAUSAL, self._unmasked
        masks = {}
        for kind in self._kinds:
            hidden = hidden_in_chunk(kind, torch.tensor(starts, device=_CPU), q, kv)[:, None]
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=_CPU)
            masks[kind.name] = mask.masked_fill_(hidden, -torch.inf)
        return Visibility.CHUNK, ReadyMasks(one_or_all(masks))

    def causal(self, starts: Sequence[int], counts: Sequence[int]) -> bool:
        """See :class:`MaskBuilder`."""
        return not any(starts) and max(counts) <= self.reach

    def _write_full(
        self,
        i: int,
        plane: NDArray[Any],
        length: int,
        tree: TokenTree,
        first: int,
        kv: int,
    ) -> None:
        """Write plane ``i``."""
        stale, begin, end = self._dirty[i]
        if stale:
            plane[:stale, begin:end] = 0
        n = len(tree)
        rows = self._group * (n - first)
        own = plane[:rows].reshape(self._group, n - first, -1)
        if n > 1:
            hidden = (ancestors(tree.parents.tolist())[first:] ^ 1) * self._hide
            own[:, :, length : length + n] = hidden
        own[:, :, length + n : kv] = self._hide
        self._dirty[i] = (rows, length, kv)

    def _write_reach(
        self,
        kind: LayerKind,
        plane: NDArray[Any],
        full: NDArray[Any],
        length: int,
        tree: TokenTree,
        first: int,
    ) -> None:
        """Write a plane of a kind of limited reach; ``full`` ``[nodes, kv]`` is without a limit."""
        nodes, kv = full.shape
        keys = np.arange(kv)
        keys[length : length + len(tree)] = length + tree.depths
        queries = keys[length + first : length + len(tree), None]
        shown = kind.hidden(queries, keys) * self._hide | full
        rows = plane[: self._group * nodes].reshape(self._group, nodes, -1)
        rows[:, :, :kv] = shown

    def _view(self, kind: LayerKind | None, b: int, rows: int, kv: int) -> torch.Tensor:
        plane, _ = self._planes[kind]
        _, height, width = self._shape
        return plane.as_strided((b, 1, rows, kv), (height * width, height * width, width, 1))

    def trim(self) -> None:
        """Give back all memory."""
        self._shape, self._planes, self._dirty = (0, 0, 0), {}, []

    def _reserve(self, b: int, rows: int, kv: int) -> None:
        # Powers of two keep the number of re-allocations logarithmic in the longest sequence.
        asked = [1 << (n - 1).bit_length() for n in (b, rows, max(kv, _FEWEST_KEYS))]
        most = max(_SMALL, _TIMES * math.prod(asked))
        # Many short sequences and a long one seldom come together: the largest of each may be far
        # more than any batch needs.
        grown = [*map(max, self._shape, asked)]
        sizes = grown if math.prod(grown) <= most else asked
        shape = (sizes[0], sizes[1], sizes[2])
        if shape == self._shape:
            return
        limited = [kind for kind in self._kinds if kind.reach < np.inf]
        planes: dict[LayerKind | None, tuple[torch.Tensor, NDArray[Any]]] = {}
        for kind in (None, *limited):
            plane = torch.zeros(shape, dtype=self._dtype, device=_CPU)
            as_int = getattr(torch, np.dtype(self._bits).name)
            planes[kind] = (plane, plane.view(as_int).numpy())
        # Not before all planes are there: without the memory for them, the old ones go on.
        self._shape, self._planes = shape, planes
        self._dirty = [(0, 0, 0)] * shape[0]
