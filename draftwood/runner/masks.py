"""Additive attention masks for a batch of trees, built once per forward for all layers.

A node sees its sequence's prefix, its ancestors and itself, within the layer's window or chunk.
Distances are counted in *depth*, never in cache entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import Visibility
from draftwood.tree import TokenTree

Masks: TypeAlias = torch.Tensor | dict[str, torch.Tensor]

_REACHES = {
    "full_attention": (None, None),
    "sliding_attention": ("sliding_window", None),
    "chunked_attention": (None, "attention_chunk_size"),
}
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


def layer_kinds(config: Any) -> tuple[LayerKind, ...]:
    """The kinds of attention layers that a text config describes.

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


def ancestors(parents: Sequence[int]) -> NDArray[np.uint8]:
    """0/1 matrix ``[n, n]``: 1 at ``(i, j)`` if node ``j`` is ``i`` or an ancestor of it."""
    n = len(parents)
    width = (n + 7) // 8
    bits = [1]
    for i in range(1, n):
        bits.append(bits[parents[i]] | 1 << i)
    packed = np.frombuffer(b"".join([b.to_bytes(width, "little") for b in bits]), dtype=np.uint8)
    return np.unpackbits(packed.reshape(n, width), axis=1, count=n, bitorder="little")


def _one_or_all(masks: dict[str, torch.Tensor]) -> Masks:
    """The masks as models take them: by kind of layer if there are several kinds."""
    return masks if len(masks) > 1 else next(iter(masks.values()))


class TreeMasks:
    """Persistent mask buffers; :meth:`build` writes only the changes since the last forward.

    Args:
        kinds: the model's kinds of layers.
        group: query heads per key head, g.
        dtype: the model's; a hidden key gets minus infinity.
        device: the model's.
    """

    def __init__(
        self, kinds: tuple[LayerKind, ...], group: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._kinds = kinds
        self._group = group
        self._dtype = dtype
        self._device = device
        self._reach = min(kind.reach for kind in kinds)
        bits = _BITS[dtype.itemsize]
        self._bits = bits
        as_int = getattr(torch, np.dtype(bits).name)
        self._hide: Any = bits(torch.tensor(-torch.inf, dtype=dtype).view(as_int).item())
        self._shape = (0, 0, 0)
        self._planes: dict[LayerKind | None, tuple[torch.Tensor, NDArray[Any], torch.Tensor]] = {}
        self._dirty: list[tuple[int, int, int]] = []
        # Of the right rank, for attention that needs no mask.
        unmasked = torch.zeros(1, 1, 1, 1, dtype=dtype, device=device)
        self._unmasked = _one_or_all({kind.name: unmasked for kind in kinds})

    def build(
        self,
        lengths: Sequence[int],
        trees: Sequence[TokenTree],
        q: int,
        kv: int,
        done: Sequence[int],
    ) -> tuple[Visibility, Masks]:
        """Masks of one forward over ``b`` trees padded to ``q`` new nodes and ``kv`` keys.

        The first ``done[i]`` nodes of tree ``i`` are cached, the others are the queries. A padding
        node sees the prefix and itself, and no real node sees it.
        """
        b = len(trees)
        if b == 1 and q == 1 and kv <= self._reach and trees[0].depth == done[0]:
            return Visibility.OPEN, self._unmasked  # one node below a chain, or a root alone
        rows = self._group * q
        self._reserve(b, rows, kv)
        bits = self._planes[None][1]
        self._write_full(bits, lengths, trees, q, kv, done)
        shown = self._view(None, b, rows, kv)
        deepest = max(length + tree.depth for length, tree in zip(lengths, trees, strict=True))
        masks = {}
        for kind in self._kinds:
            if deepest < kind.reach:
                masks[kind.name] = shown
            else:
                self._write_reach(kind, bits, lengths, trees, q, kv, done)
                masks[kind.name] = self._view(kind, b, rows, kv)
        return Visibility.TREE, _one_or_all(masks)

    def chunk(self, starts: Sequence[int], q: int, kv: int) -> tuple[Visibility, Masks]:
        """Masks of a prefill chunk: ``q`` consecutive tokens from position ``starts[i]`` on."""
        if kv == q and kv <= self._reach:
            return Visibility.CAUSAL, self._unmasked
        keys = torch.arange(kv, device=self._device)
        first = torch.tensor(starts, device=self._device)
        queries = (first[:, None] + torch.arange(q, device=self._device))[:, None, :, None]
        masks = {}
        for kind in self._kinds:
            hidden = (keys > queries) | kind.hidden(queries, keys)
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
            masks[kind.name] = mask.masked_fill_(hidden, -torch.inf)
        return Visibility.CHUNK, _one_or_all(masks)

    def _write_full(
        self,
        bits: NDArray[Any],
        lengths: Sequence[int],
        trees: Sequence[TokenTree],
        q: int,
        kv: int,
        done: Sequence[int],
    ) -> None:
        g, hide = self._group, self._hide
        rows = g * q
        for i, tree in enumerate(trees):
            plane = bits[i]
            stale, begin, end = self._dirty[i]
            if stale:
                plane[:stale, begin:end] = 0
            length, first, n = lengths[i], done[i], len(tree)
            end = first + q
            if end > 1:
                block = np.zeros((q, end), dtype=self._bits)
                seen = ancestors(tree.parents.tolist())
                new = n - first
                block[:new, :n] = (seen[first:] ^ 1) * hide
                if n < end:
                    block[:, n:] = hide
                    block[new:, :n] = hide
                    np.fill_diagonal(block[new:, n:], 0)
                plane[:rows].reshape(g, q, -1)[:, :, length : length + end] = block
            if length + end < kv:
                plane[:rows, length + end : kv] = hide
            self._dirty[i] = (rows, length, kv)

    def _write_reach(
        self,
        kind: LayerKind,
        full: NDArray[Any],
        lengths: Sequence[int],
        trees: Sequence[TokenTree],
        q: int,
        kv: int,
        done: Sequence[int],
    ) -> None:
        g = self._group
        _, bits, _ = self._planes[kind]
        for i, tree in enumerate(trees):
            length, first, n = lengths[i], done[i], len(tree)
            keys = np.arange(kv)
            keys[length : length + n] = length + tree.depths
            keys[length + n : length + first + q] = length
            queries = keys[length + first : length + first + q, None]
            shown = kind.hidden(queries, keys) * self._hide
            shown |= full[i, :q, :kv]
            bits[i, : g * q].reshape(g, q, -1)[:, :, :kv] = shown

    def _view(self, kind: LayerKind | None, b: int, rows: int, kv: int) -> torch.Tensor:
        host, _, device = self._planes[kind]
        _, height, width = self._shape
        size, stride = (b, 1, rows, kv), (height * width, height * width, width, 1)
        shown = host.as_strided(size, stride)
        if host is device:
            return shown
        return device.as_strided(size, stride).copy_(shown, non_blocking=True)

    def _reserve(self, b: int, rows: int, kv: int) -> None:
        shape = self._shape
        if b <= shape[0] and rows <= shape[1] and kv <= shape[2]:
            return
        # Powers of two keep the number of re-allocations logarithmic in the longest sequence.
        self._shape = (
            max(shape[0], 1 << (b - 1).bit_length()),
            max(shape[1], 1 << (rows - 1).bit_length()),
            max(shape[2], 1 << max(8, (kv - 1).bit_length())),
        )
        self._dirty = [(0, 0, 0)] * self._shape[0]
        cuda = self._device.type == "cuda"
        limited = [kind for kind in self._kinds if kind.reach < np.inf]
        self._planes.clear()
        for kind in (None, *limited):
            host = torch.zeros(self._shape, dtype=self._dtype, pin_memory=cuda)
            device = host if self._device.type == "cpu" else host.to(self._device)
            as_int = getattr(torch, np.dtype(self._bits).name)
            self._planes[kind] = (host, host.view(as_int).numpy(), device)
