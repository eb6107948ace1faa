"""The key-value cache: one slab per shape, rows for requests, room for a tree behind each.

Keys and values of all layers with equal heads and head width share one tensor ``[n, B, S, H, D]``
(for a uniform model n runs over layer 0's keys, layer 0's values, layer 1's keys, ...). Rolling
back is not advancing a length; keeping an accepted path is one gather per tensor. Knows nothing of
trees, masks or positions: a caller says which cells a forward writes and how many keys it reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache

from draftwood.errors import DraftwoodError

_GRAIN = 64


@dataclass(frozen=True)
class Plane:
    """Shape of one layer's keys, or of its values: ``heads`` x ``width`` per token."""

    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device


class KVCache(Cache):
    """Slots over preallocated rows; slot numbers stay the same while rows move.

    The used rows are always the first ones, so that a forward over all requests reads a view.

    Args:
        layers: keys' and values' planes of every layer, in order.
        margin: cells kept free behind the capacity of a request, for the nodes of a tree.
        scatter: write by index even where the cells of a forward form a rectangle (slower; the
            plain twin of the rectangular copy).
    """

    def __init__(
        self, layers: Sequence[tuple[Plane, Plane]], margin: int = _GRAIN, scatter: bool = False
    ) -> None:
        super().__init__(layers=[])
        if not layers:
            raise DraftwoodError("the model caches no keys and values, so nothing can branch")
        self.margin = margin
        self.scatter = scatter
        planes = [plane for pair in layers for plane in pair]
        kinds = list(dict.fromkeys(planes))
        self._groups = [(kind, planes.count(kind)) for kind in kinds]
        seen = dict.fromkeys(kinds, 0)
        self._places: list[tuple[int, int]] = []
        for plane in planes:
            self._places.append((kinds.index(plane), seen[plane]))
            seen[plane] += 1
        self.rows = 0
        self.stride = 0
        self.tensors: list[torch.Tensor] = []
        self._flats: list[torch.Tensor] = []
        self._row: dict[int, int] = {}
        self._slots: list[int] = []
        self._lengths: list[int] = []
        self._touched: list[int] = []
        self._free: list[int] = []
        self._reads: list[torch.Tensor] = []
        self._writes: list[torch.Tensor] = []
        self._cells: torch.Tensor | None = None
        self._picked: torch.Tensor | None = None
        self._kv = 0

    # --- slots ------------------------------------------------------------------------------------

    def open(self, capacity: int) -> int:
        """A fresh slot that will hold up to ``capacity`` tokens (it grows if it must hold more)."""
        self.reserve(len(self._slots) + 1, capacity + self.margin)
        slot = self._free.pop() if self._free else len(self._row)
        self._row[slot] = len(self._slots)
        self._slots.append(slot)
        self._lengths.append(0)
        self._touched.append(0)
        return slot

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Forget a slot; the last row moves into the hole."""
        hole, last = self.row(slot), len(self._slots) - 1
        used = self._touched[last]
        for tensor in self.tensors:
            if hole != last:
                tensor[:, hole, :used] = tensor[:, last, :used]
                # What the mover's row held beyond its own cells must not leak a NaN either.
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

    def row(self, slot: int) -> int:
        """Where the slot lies now.

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
        """Declare that the slot holds ``length`` tokens: advance, or roll back."""
        self._lengths[self.row(slot)] = length

    def exchange(self, one: int, other: int) -> None:
        """Let two slots swap what they hold."""
        first, second = self.row(one), self.row(other)
        self._row[one], self._row[other] = second, first
        self._slots[first], self._slots[second] = other, one

    # --- one forward ------------------------------------------------------------------------------

    def straight(self, rows: Sequence[int], starts: Sequence[int]) -> bool:
        """Whether the cells that a forward writes form a rectangle, which needs no index."""
        b = len(rows)
        return not self.scatter and rows[-1] - rows[0] < b and starts.count(starts[0]) == b

    def begin(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        q: int,
        kv: int,
        cells: torch.Tensor | None,
    ) -> None:
        """Say what the coming forward writes and reads.

        Args:
            rows: row of every sequence of the batch, ascending.
            starts: first cell that each sequence writes; it writes ``q`` of them.
            q: tokens per sequence, padding included.
            kv: how many cells of every row are read, from the first on.
            cells: int64 ``[b * q]`` on the device: ``row * stride + cell`` of every token; None
                if the cells are :meth:`straight`.
        """
        b = len(rows)
        for row, start in zip(rows, starts, strict=True):
            self._touched[row] = max(self._touched[row], start + q)
        self._kv = kv
        first = rows[0]
        self._picked = None
        self._cells = cells
        if cells is None:
            self._writes = self._windows(first, b, starts[0], q)
        if rows[-1] - first < b:
            self._reads = self._windows(first, b, 0, kv)
        else:
            self._picked = torch.tensor(rows, device=self.tensors[0].device)

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
        """Write ``[b, H, q, D]`` keys and values, return views of the ``kv`` cells each row has."""
        k = 2 * layer_idx
        cells = self._cells
        if cells is None:
            self._writes[k].copy_(key_states)
            self._writes[k + 1].copy_(value_states)
        else:
            flats = self._flats
            flats[k].index_copy_(0, cells, key_states.transpose(1, 2).flatten(0, 1))
            flats[k + 1].index_copy_(0, cells, value_states.transpose(1, 2).flatten(0, 1))
        if self._picked is None:
            return self._reads[k], self._reads[k + 1]
        return self._gather(k), self._gather(k + 1)

    def _gather(self, index: int) -> torch.Tensor:
        group, i = self._places[index]
        picked = self.tensors[group][i, :, : self._kv].index_select(0, self._picked)  # type: ignore[arg-type]
        return picked.transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Cells the current forward reads; models only use it where no positions are given."""
        return self._kv

    # --- committing and growing -------------------------------------------------------------------

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy cells (``row * stride + cell``, int64 on the device) over others, in every layer."""
        for (plane, n), tensor in zip(self._groups, self.tensors, strict=True):
            flat = tensor.view(n, -1, plane.heads, plane.width)
            flat.index_copy_(1, targets, flat.index_select(1, sources))

    def reserve(self, rows: int, cells: int) -> None:
        """Make room; both sizes grow geometrically, and only what was used is copied."""
        if rows <= self.rows and cells <= self.stride:
            return
        old, held = self.tensors, len(self._slots)
        if rows > self.rows:
            rows = max(rows, 2 * self.rows)
        used = max(self._touched, default=0)
        if cells > self.stride:
            grown = max(cells, self.stride * 3 // 2) if used else cells
            cells = -(-grown // _GRAIN) * _GRAIN
        self.rows, self.stride = max(rows, self.rows), max(cells, self.stride)
        self.tensors, flats = [], []
        with torch.inference_mode():
            for g, (plane, n) in enumerate(self._groups):
                # Zeros, never empty: a masked cell still counts as 0 * value, and 0 * NaN is NaN.
                tensor = torch.zeros(
                    (n, self.rows, self.stride, plane.heads, plane.width),
                    dtype=plane.dtype,
                    device=plane.device,
                )
                if used:
                    tensor[:, :held, :used] = old[g][:, :held, :used]
                self.tensors.append(tensor)
                flats.append(tensor.view(n, -1, plane.heads, plane.width).unbind(0))
        self._flats = [flats[group][i] for group, i in self._places]

    def tokens(self, slot: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views ``[length, H, D]`` of the keys and values a slot holds in one layer."""
        row, found = self.row(slot), []
        for index in (2 * layer, 2 * layer + 1):
            group, i = self._places[index]
            found.append(self.tensors[group][i, row, : self._lengths[row]])
        return found[0], found[1]

    def advance(
        self, slots: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[int]]:
        """Lengthen each slot by its root and path; which cells must :meth:`move` where for it."""
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
