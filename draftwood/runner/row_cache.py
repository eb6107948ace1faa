"""A KV cache in rows: a slot's entries lie behind one another, with room for a tree at their end.

The tensors are ``[n, rows, stride, heads, width]``. The used rows are always the first ones, so
that a forward over all requests reads a view. All rows are as long as the longest one.
"""

import math
from collections.abc import Sequence
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.protocols import SavedTokens
from draftwood.runner.cache import KVCache, Plane
from draftwood.runner.cpu.small_pages import zeros

_GRAIN = 64


class RowCache(KVCache):
    """The KV cache of one model. A slot's number stays the same when its row moves.

    Args:
        layers: see :class:`draftwood.runner.cache.KVCache`.
        margin: free entries behind a request's capacity, for the nodes of a tree.
        scatter: write by index for one sequence, too (slower; the plain twin of the copy).

    Attributes:
        first_row: that the present forward reads.
        apart: the rows that it reads if these do not lie behind one another, else None.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Plane, Plane] | int | None],
        margin: int = _GRAIN,
        scatter: bool = False,
    ) -> None:
        super().__init__(layers)
        self.margin = margin
        self.by_index = scatter
        self.rows = 0
        self.stride = 0
        self._touched: list[int] = []  # by row, entries that were written
        self._reads: list[torch.Tensor] = []
        self._writes: list[torch.Tensor] = []
        self._write_span = self._read_span = (0, 0, 0, 0)
        self._picked: torch.Tensor | None = None
        self.first_row = 0
        self.apart: Sequence[int] | None = None

    # --- slots ------------------------------------------------------------------------------------

    def open(self, capacity: int) -> int:
        """See :meth:`KVCache.open`."""
        row = len(self._row)
        self.reserve(row + 1, capacity + self.margin)
        # An interrupt may have left more of them than there are rows.
        self._lengths[row:] = self._touched[row:] = [0]
        return self._named(row)

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """See :meth:`KVCache.release`: the last row moves into the slot's place."""
        hole, last = self.row(slot), len(self._row) - 1
        moved = next(each for each, row in self._row.items() if row == last)
        used, touched = self._touched[last], self._touched[hole]
        if hole != last:
            for tensor in self.tensors:
                tensor[:, hole, :used] = tensor[:, last, :used]
                # Entries beyond the moved ones must not leak a NaN either.
                tensor[:, hole, used:touched] = 0
            self._lengths[hole], self._touched[hole] = self._lengths[last], used
        # Not before the row is copied: an interrupt leaves each open slot a row of its own.
        self._row[moved] = hole
        del self._row[slot]
        for tensor in self.tensors:
            tensor[:, last, :used] = 0
        del self._lengths[last:], self._touched[last:]

    def trim(self) -> None:
        """See :meth:`KVCache.trim`."""
        if self._row:
            return
        self.rows = self.stride = 0
        self._reads, self._writes = [], []
        self._take([])

    @torch.inference_mode()
    def saved(self, slot: int, length: int) -> SavedTokens:
        """See :meth:`KVCache.saved`."""
        row = self.row(slot)
        return SavedTokens(
            length, tuple(tensor[:, row, :length].clone() for tensor in self.tensors)
        )

    @torch.inference_mode()
    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """See :meth:`KVCache.restore`."""
        self.reserve(0, length)
        row = self.row(slot)
        for tensor, kept in zip(self.tensors, saved.tensors, strict=True):
            tensor[:, row, :length] = kept[:, :length]
        self._lengths[row] = length
        self._touched[row] = max(self._touched[row], length)

    @torch.inference_mode()
    def lend(self, lender: int, slot: int, length: int) -> None:
        """See :meth:`KVCache.lend`."""
        self.reserve(0, length)
        source, row = self.row(lender), self.row(slot)
        for tensor in self.tensors:
            tensor[:, row, :length] = tensor[:, source, :length]
        self._lengths[row] = length
        self._touched[row] = max(self._touched[row], length)

    # --- one forward ------------------------------------------------------------------------------

    def make_room(self, rows: Sequence[int], ends: Sequence[int]) -> None:  # noqa: ARG002
        """See :meth:`KVCache.make_room`: all rows are as long as the longest."""
        self.reserve(0, max(ends))

    def runs(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """See :meth:`KVCache.runs`."""
        return [self._entry(row, start) for row, start in zip(rows, starts, strict=True)], counts

    def begin(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        entries: torch.Tensor | None,
        picked: torch.Tensor | None = None,
    ) -> None:
        """See :meth:`KVCache.begin`. From every row, as many are read as the longest has."""
        b = len(rows)
        for row, start, count in zip(rows, starts, counts, strict=True):
            self._touched[row] = max(self._touched[row], start + count)
        self._kv = max(map(add, starts, counts))
        self.first_row = first = rows[0]
        self._begin, self._count = first * self.stride + starts[0], counts[0]
        self._picked, self.apart = picked, None if picked is None else rows
        self._entries = entries
        # Views are made when a layer asks for its own; a stack of layers needs none.
        self._writes, self._write_span = [], (first, b, starts[0], counts[0])
        span = (first, b, 0, self._kv)
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
        """See :meth:`KVCache.update`: one sequence's entries are written as a window."""
        if self._entries is not None:
            return super().update(key_states, value_states, layer_idx)
        k = self._keys[layer_idx]
        if not self._writes:
            self._writes = self._windows(*self._write_span)
        self._writes[k].copy_(key_states)
        self._writes[k + 1].copy_(value_states)
        return self.read(layer_idx)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KVCache.read`: ``[b, heads, kv, width]`` of every row."""
        k = self._keys[layer]
        if self._picked is not None:
            return self._gather(k), self._gather(k + 1)
        if not self._reads:
            self._reads = self._windows(*self._read_span)
        return self._reads[k], self._reads[k + 1]

    def _gather(self, index: int) -> torch.Tensor:
        group, i = self._places[index]
        picked = self.tensors[group][i, :, : self._kv].index_select(0, self._picked)  # type: ignore[arg-type]
        return picked.transpose(1, 2)

    def entries(self) -> NDArray[np.int64]:
        """The entries that the present forward writes, int64 ``[n]``; for a cache on the CPU."""
        if self._entries is not None:
            found: NDArray[np.int64] = self._entries.numpy()
            return found
        return np.arange(self._begin, self._begin + self._count)

    def held(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KVCache.held`: views if the slots' rows lie behind one another."""
        rows, most = list(map(self.row, slots)), max(map(self.length, slots))
        adjoining = rows == list(range(rows[0], rows[0] + len(rows)))
        which = slice(rows[0], rows[0] + len(rows)) if adjoining else rows
        found = []
        for k in (self._keys[layer], self._keys[layer] + 1):
            group, i = self._places[k]
            found.append(self.tensors[group][i, which, :most].transpose(1, 2))
        return found[0], found[1]

    # --- committing and growing -------------------------------------------------------------------

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
        rows, stride = max(rows, self.rows), max(entries, self.stride)
        with torch.inference_mode():
            new = []
            for g, (plane, n) in enumerate(self._groups):
                tensor = _zeros((n, rows, stride, plane.heads, plane.width), plane)
                for row, own in enumerate(self._touched):
                    if own:
                        tensor[:, row, :own] = old[g][:, row, :own]
                new.append(tensor)
        # Not before all tensors are there: without the memory for them, the old ones go on.
        self.rows, self.stride = rows, stride
        self._reads, self._writes = [], []
        self._take(new)

    def _entry(self, row: int, token: int) -> int:
        return row * self.stride + token


def _zeros(shape: tuple[int, ...], plane: Plane) -> torch.Tensor:
    """A tensor of zeros, never empty: a masked entry counts as 0 * value, and 0 * NaN is NaN.

    On a CPU its pages become memory as they are written, while torch writes all of them at once,
    which takes as long as some forwards.
    """
    if plane.device.type != "cpu":
        return torch.zeros(shape, dtype=plane.dtype, device=plane.device)
    size = math.prod(shape) * plane.dtype.itemsize
    return torch.from_numpy(zeros(size)).view(plane.dtype).view(shape)
