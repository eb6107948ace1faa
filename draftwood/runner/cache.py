"""The preallocated KV cache: one row per request, with room for a tree behind its tokens.

Keys and values of all layers with equal heads and head width share one tensor ``[n, B, S, H, D]``
(for a uniform model n runs over layer 0's keys, layer 0's values, layer 1's keys, ...). An *entry*
is one token's place in a row. Rolling back changes a length only. Keeping an accepted path is one
gather per tensor. The caller names the entries that a forward writes and the number that it reads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache

from draftwood.errors import DraftwoodError
from draftwood.protocols import SavedTokens
from draftwood.runner.cpu.aligned import LINE

_GRAIN = 64


@dataclass(frozen=True)
class Plane:
    """Shape and dtype of one layer's keys, or of its values: ``heads`` x ``width`` per token."""

    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device


class KVCache(Cache):
    """The KV cache of one model, by slots. A slot's number stays the same when its row moves.

    The used rows are always the first ones, so that a forward over all requests reads a view.

    Args:
        layers: planes of the keys and of the values of every layer, in order; of a layer that
            stores none, the index of the layer whose keys and values it reads.
        margin: free entries behind a request's capacity, for the nodes of a tree.
        scatter: write by index for one sequence, too (slower; the plain twin of the copy).
    """

    def __init__(
        self,
        layers: Sequence[tuple[Plane, Plane] | int],
        margin: int = _GRAIN,
        scatter: bool = False,
    ) -> None:
        super().__init__(layers=[])
        self.margin = margin
        self.scatter = scatter
        pairs = {layer: pair for layer, pair in enumerate(layers) if not isinstance(pair, int)}
        planes = [plane for pair in pairs.values() for plane in pair]
        firsts = {layer: 2 * i for i, layer in enumerate(pairs)}
        self._keys = [firsts[pair if isinstance(pair, int) else i] for i, pair in enumerate(layers)]
        kinds = list(dict.fromkeys(planes))
        self._groups = [(kind, planes.count(kind)) for kind in kinds]
        seen = dict.fromkeys(kinds, 0)
        self._places: list[tuple[int, int]] = []
        for plane in planes:
            self._places.append((kinds.index(plane), seen[plane]))
            seen[plane] += 1
        self.rows = 0
        self.stride = 0
        self.generation = 0  # of the tensors, which are new when the cache has grown
        self.tensors: list[torch.Tensor] = []
        self._flats: list[torch.Tensor] = []
        self._row: dict[int, int] = {}
        self._slots: list[int] = []
        self._lengths: list[int] = []
        self._touched: list[int] = []
        self._free: list[int] = []
        self._reads: list[torch.Tensor] = []
        self._writes: list[torch.Tensor] = []
        self._write_span = self._read_span = (0, 0, 0, 0)
        self._entries: torch.Tensor | None = None
        self._picked: torch.Tensor | None = None
        self._kv = 0
        self.first_row = 0

    # --- slots ------------------------------------------------------------------------------------

    def open(self, capacity: int) -> int:
        """Open a slot for up to ``capacity`` tokens; it grows if it must hold more."""
        self.reserve(len(self._slots) + 1, capacity + self.margin)
        slot = self._free.pop() if self._free else len(self._row)
        self._row[slot] = len(self._slots)
        self._slots.append(slot)
        self._lengths.append(0)
        self._touched.append(0)
        return slot

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Close a slot; the last row moves into its place."""
        hole, last = self.row(slot), len(self._slots) - 1
        used = self._touched[last]
        for tensor in self.tensors:
            if hole != last:
                tensor[:, hole, :used] = tensor[:, last, :used]
                # Entries beyond the moved ones must not leak a NaN either.
                tensor[:, hole, used : self._touched[hole]] = 0
            tensor[:, last, : self._touched[last]] = 0
        moved = self._slots.pop()
        length, touched = self._lengths.pop(), self._touched.pop()
        if hole != last:
            self._slots[hole], self._lengths[hole] = moved, length
            self._touched[hole] = touched
            self._row[moved] = hole
        del self._row[slot]
        self._free.append(slot)

    def trim(self) -> None:
        """Give back all memory, if no slot is open."""
        if self._slots:
            return
        self.rows = self.stride = 0
        self.generation += 1
        for views in (self.tensors, self._flats):
            views.clear()
        self._reads, self._writes = [], []

    def row(self, slot: int) -> int:
        """The slot's present row.

        Raises:
            DraftwoodError: no such slot is open.
        """
        row = self._row.get(slot)
        if row is None:
            raise DraftwoodError(f"slot {slot} is not open; open() gives the number of a slot")
        return row

    def length(self, slot: int) -> int:
        """Number of tokens the slot holds."""
        return self._lengths[self.row(slot)]

    def resize(self, slot: int, length: int) -> None:
        """Set the slot's length: advance, or roll back."""
        self._lengths[self.row(slot)] = length

    def swap_slots(self, one: int, other: int) -> None:
        """Swap the rows of two slots."""
        first, second = self.row(one), self.row(other)
        self._row[one], self._row[other] = second, first
        self._slots[first], self._slots[second] = other, one

    @torch.inference_mode()
    def saved(self, slot: int, length: int) -> SavedTokens:
        """A copy of the first entries of a slot, each tensor ``[n, length, H, D]``."""
        row = self.row(slot)
        return SavedTokens(
            length, tuple(tensor[:, row, :length].clone() for tensor in self.tensors)
        )

    @torch.inference_mode()
    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """Begin an empty slot with the first ``length`` saved entries."""
        self.reserve(0, length)
        row = self.row(slot)
        for tensor, kept in zip(self.tensors, saved.tensors, strict=True):
            tensor[:, row, :length] = kept[:, :length]
        self._lengths[row] = length
        self._touched[row] = max(self._touched[row], length)

    # --- one forward ------------------------------------------------------------------------------

    def begin(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        entries: torch.Tensor | None,
        picked: torch.Tensor | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Set the entries that the next forward writes and reads.

        From every row, as many entries are read as the longest sequence has.

        Args:
            rows: row of every sequence of the batch, ascending.
            starts: first entry that each sequence writes.
            counts: number of entries that it writes.
            entries: int64 ``[n]`` on the device: ``row * stride + entry`` of every token; None for
                one sequence, whose entries lie behind one another.
            picked: the rows, int64 on the device, if they do not lie behind one another.
            whole: all entries of all rows are handed to the attention instead.
        """
        b = len(rows)
        for row, start, count in zip(rows, starts, counts, strict=True):
            self._touched[row] = max(self._touched[row], start + count)
        self._kv = max(map(add, starts, counts))
        self.first_row = first = rows[0]
        self._begin, self._count = first * self.stride + starts[0], counts[0]
        self._picked = None if whole else picked
        self._entries = entries
        # Views are made when a layer asks for its own; a stack of layers needs none.
        self._writes, self._write_span = [], (first, b, starts[0], counts[0])
        span = (0, self.rows, 0, self.stride) if whole else (first, b, 0, self._kv)
        if span != self._read_span:
            self._reads, self._read_span = [], span

    def _windows(self, first: int, b: int, start: int, count: int) -> list[torch.Tensor]:
        """``[b, H, count, D]`` views of every (layer, K or V), made in one call per tensor."""
        split = []
        for (plane, n), tensor in zip(self._groups, self.tensors, strict=True):
            token = plane.heads * plane.width
            row = self.stride * token
            split.append(
                tensor.as_strided(
                    (n, b, plane.heads, count, plane.width),
                    (self.rows * row, row, plane.width, token, 1),
                    first * row + start * token,
                ).unbind(0)
            )
        if len(split) == 1:
            return split[0]  # type: ignore[return-value]
        return [split[group][i] for group, i in self._places]

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, H, n, D]`` keys and values; return ``[b, H, kv, D]`` of every row."""
        k = self._keys[layer_idx]
        entries = self._entries
        if entries is None:
            if not self._writes:
                self._writes = self._windows(*self._write_span)
            self._writes[k].copy_(key_states)
            self._writes[k + 1].copy_(value_states)
        else:
            flats = self._flats
            flats[k].index_copy_(0, entries, key_states.transpose(1, 2).flatten(0, 1))
            flats[k + 1].index_copy_(0, entries, value_states.transpose(1, 2).flatten(0, 1))
        return self.read(layer_idx)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[b, H, kv, D]`` of a layer that the present forward reads."""
        k = self._keys[layer]
        if self._picked is not None:
            return self._gather(k), self._gather(k + 1)
        if not self._reads:
            self._reads = self._windows(*self._read_span)
        return self._reads[k], self._reads[k + 1]

    @property
    def written(self) -> torch.Tensor | None:
        """The entries that the present forward writes, int64 ``[n]``; None: a row's next ones."""
        return self._entries

    def _gather(self, index: int) -> torch.Tensor:
        group, i = self._places[index]
        picked = self.tensors[group][i, :, : self._kv].index_select(0, self._picked)  # type: ignore[arg-type]
        return picked.transpose(1, 2)

    @property
    def gathers(self) -> bool:
        """Whether the present forward reads rows that do not lie behind one another."""
        return self._picked is not None

    def entries(self) -> NDArray[np.int64]:
        """The entries that the present forward writes, int64 ``[n]``; for a cache on the CPU."""
        if self._entries is not None:
            found: NDArray[np.int64] = self._entries.numpy()
            return found
        return np.arange(self._begin, self._begin + self._count)

    def flat(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, ``[entries, heads, width]``; new when the cache grows."""
        k = self._keys[layer]
        return self._flats[k], self._flats[k + 1]

    def held(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of some slots' tokens, ``[b, heads, n, width]``, n of the longest.

        It is a view, or a copy if the slots' rows do not lie behind one another.
        """
        rows, most = list(map(self.row, slots)), max(map(self.length, slots))
        adjoining = rows == list(range(rows[0], rows[0] + len(rows)))
        which = slice(rows[0], rows[0] + len(rows)) if adjoining else rows
        found = []
        for k in (self._keys[layer], self._keys[layer] + 1):
            group, i = self._places[k]
            found.append(self.tensors[group][i, which, :most].transpose(1, 2))
        return found[0], found[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Entries that the current forward reads; models use it only without positions."""
        return self._kv

    # --- committing and growing -------------------------------------------------------------------

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy entries (``row * stride + entry``, int64 on the device) in every layer."""
        for (plane, n), tensor in zip(self._groups, self.tensors, strict=True):
            flat = tensor.view(n, -1, plane.heads, plane.width)
            flat.index_copy_(1, targets, flat.index_select(1, sources))

    def reserve(self, rows: int, entries: int) -> None:
        """Make room, and copy the used entries.

        Both sizes grow by a quarter at a time, so that hardly more memory is held than is used. A
        token is then copied four times in all, which is less than a thousandth of what a forward
        reads.
        """
        if rows <= self.rows and entries <= self.stride:
            return
        old = self.tensors
        if rows > self.rows:
            rows = max(rows, self.rows * 5 // 4)
        if entries > self.stride:
            grown = max(entries, self.stride * 5 // 4) if any(self._touched) else entries
            entries = -(-grown // _GRAIN) * _GRAIN
        self.rows, self.stride = max(rows, self.rows), max(entries, self.stride)
        self.generation += 1
        self.tensors, flats, self._reads, self._writes = [], [], [], []
        with torch.inference_mode():
            for g, (plane, n) in enumerate(self._groups):
                tensor = _zeros((n, self.rows, self.stride, plane.heads, plane.width), plane)
                for row, own in enumerate(self._touched):
                    if own:
                        tensor[:, row, :own] = old[g][:, row, :own]
                self.tensors.append(tensor)
                flats.append(tensor.view(n, -1, plane.heads, plane.width).unbind(0))
        self._flats = [flats[group][i] for group, i in self._places]

    def advance(
        self, slots: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[int]]:
        """Append each slot's root and path; returns the sources and targets for :meth:`move`."""
        sources: list[int] = []
        targets: list[int] = []
        for slot, path in zip(slots, paths, strict=True):
            row = self.row(slot)
            base = row * self.stride + self._lengths[row]
            for depth, node in enumerate(path, 1):
                if node != depth:
                    sources.append(base + node)
                    targets.append(base + depth)
            self._lengths[row] += len(path) + 1
        return sources, targets


def _zeros(shape: tuple[int, ...], plane: Plane) -> torch.Tensor:
    """A tensor of zeros, never empty: a masked entry counts as 0 * value, and 0 * NaN is NaN.

    On a CPU NumPy makes it: its pages become memory as they are written, while torch writes all of
    them at once, which takes as long as some forwards.
    """
    if plane.device.type != "cpu":
        return torch.zeros(shape, dtype=plane.dtype, device=plane.device)
    size = math.prod(shape) * plane.dtype.itemsize
    found = np.zeros(size + LINE, dtype=np.uint8)
    begin = -found.ctypes.data % LINE  # where torch's own tensors begin
    return torch.from_numpy(found[begin : begin + size]).view(plane.dtype).view(shape)
