"""A KV cache in blocks of one pool, for a kernel that looks them up.

The tensors are ``[n, entries, heads, width]``, and ``BLOCK`` entries are a block. A row is given
the next block when its text has come to it, so that it takes the memory of its tokens and of no
other row's ("PagedAttention", 2023). The table has the first entry of each block of each row. It is
on the device, where the kernel reads it, and changes there only when a block is handed out.
"""

import heapq
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import Staging
from draftwood.kernels.gpu import BLOCK
from draftwood.protocols import SavedTokens
from draftwood.runner.cache import KVCache, Plane

SPARE = 0
"""An entry of no row, which padding may write; the first block is never handed out."""

_ROWS, _WIDTH = 64, 512
"""Of the first table: a larger one has another address, and forwards are recorded anew."""

_GROWTH = 4
"""Blocks by which the pool grows at least, for the same reason."""

_LENT = 16 * BLOCK
"""Entries that are copied from one row to another at once."""


class BlockCache(KVCache):
    """The KV cache of one model. A slot's row stays the same until it is closed.

    Args:
        layers: see :class:`draftwood.runner.cache.KVCache`.

    Attributes:
        table: int64 ``[rows, blocks]`` on the device, first entry of each block of each row.
    """

    by_index = True
    block = BLOCK
    table: torch.Tensor

    def __init__(self, layers: Sequence[tuple[Plane, Plane] | int | None]) -> None:
        super().__init__(layers)
        self._device = self._groups[0][0].device
        self._staging = Staging(self._device)
        self._least = 0
        self._clear()

    def _clear(self) -> None:
        """Begin with no memory and no rows."""
        self._lengths = []
        self._own: list[list[int]] = []  # blocks, by row
        self._unused_rows: list[int] = []  # a heap
        self._blocks = 0  # of the pool
        self._unused: list[int] = []  # of them, a heap
        self.table = torch.zeros((_ROWS, _WIDTH), dtype=torch.int64, device=self._device)
        self._take([])

    # --- slots ------------------------------------------------------------------------------------

    def open(self, capacity: int) -> int:  # noqa: ARG002
        """See :meth:`KVCache.open`: blocks are handed out when there are tokens for them."""
        if self._unused_rows:
            row = heapq.heappop(self._unused_rows)
        else:
            row = len(self._own)
            self._own.append([])
            self._lengths.append(0)
            rows, width = self.table.shape
            if row >= rows:
                self._grow_table(2 * rows, width)
        return self._named(row)

    def release(self, slot: int) -> None:
        """See :meth:`KVCache.release`."""
        row = self.row(slot)
        own = self._own[row]
        del self._row[slot]  # first: an interrupt must not leave it what others are given
        self._own[row], self._lengths[row] = [], 0
        for block in own:
            heapq.heappush(self._unused, block)
        heapq.heappush(self._unused_rows, row)

    def trim(self) -> None:
        """See :meth:`KVCache.trim`."""
        if not self._row:
            self._clear()

    def allocate(self, tokens: int) -> None:
        """Make the pool of so many tokens when it is first used; it grows beyond them only."""
        self._least = tokens // BLOCK

    @torch.inference_mode()
    def saved(self, slot: int, length: int) -> SavedTokens:
        """See :meth:`KVCache.saved`."""
        [where] = self._places_of([self.row(slot)], length)
        return SavedTokens(
            length,
            tuple(tensor.index_select(1, where) for tensor in self.tensors),
        )

    @torch.inference_mode()
    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """See :meth:`KVCache.restore`."""
        row = self.row(slot)
        self.make_room([row], [length])
        [where] = self._places_of([row], length)
        for tensor, kept in zip(self.tensors, saved.tensors, strict=True):
            tensor.index_copy_(1, where, kept[:, :length])
        self._lengths[row] = length

    @torch.inference_mode()
    def lend(self, lender: int, slot: int, length: int) -> None:
        """See :meth:`KVCache.lend`: in pieces, each of which takes the memory of a copy."""
        row = self.row(slot)
        self.make_room([row], [length])
        [sources] = self._places_of([self.row(lender)], length)
        [targets] = self._places_of([row], length)
        for source, target in zip(sources.split(_LENT), targets.split(_LENT), strict=True):
            for tensor in self.tensors:
                tensor.index_copy_(1, target, tensor.index_select(1, source))
        self._lengths[row] = length

    @torch.inference_mode()
    def held(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KVCache.held`: views of one slot whose blocks lie behind one another."""
        rows, most = list(map(self.row, slots)), max(map(self.length, slots))
        if not self._blocks:
            self.make_room(rows[:1], [1])
        keys, values = self.flat(layer)
        if len(rows) == 1:
            own = self._own[rows[0]]
            if own and own == list(range(own[0], own[0] + len(own))):
                span = slice(own[0] * BLOCK, own[0] * BLOCK + most)
                return keys[span].transpose(0, 1)[None], values[span].transpose(0, 1)[None]
        where = self._places_of(rows, most)
        return keys[where].transpose(1, 2), values[where].transpose(1, 2)

    def _places_of(self, rows: Sequence[int], length: int) -> torch.Tensor:
        """Entries ``[b, length]`` of the first tokens of rows, on the device."""
        blocks = -(-length // BLOCK)
        firsts = self._firsts(rows, blocks)
        found = (firsts[:, :, None] + np.arange(BLOCK)).reshape(len(rows), -1)[:, :length]
        self._staging.begin(found.size)[:] = found.ravel()
        # A copy, as the numbers on the device are overwritten by the next ones.
        return self._staging.send((found.size,))[0].clone().view(found.shape)

    # --- one forward ------------------------------------------------------------------------------

    @torch.inference_mode()
    def make_room(self, rows: Sequence[int], ends: Sequence[int]) -> None:
        """See :meth:`KVCache.make_room`."""
        needed = [-(-end // BLOCK) for end in ends]
        wanted = [n - len(self._own[row]) for row, n in zip(rows, needed, strict=True)]
        new = sum(each for each in wanted if each > 0)
        if not new:
            return
        longest, (height, width) = max(needed), self.table.shape
        if longest > width:
            width = max(2 * width, -(-longest // _WIDTH) * _WIDTH)
            self._grow_table(height, width)
        if new > len(self._unused):
            in_use = self._blocks - len(self._unused) if self._blocks else 1
            self._grow(in_use + new)
        where, firsts = [], []
        for row, more in zip(rows, wanted, strict=True):
            own = self._own[row]
            for _ in range(more):
                block = heapq.heappop(self._unused)
                where.append(row * width + len(own))
                firsts.append(block * BLOCK)
                own.append(block)
        self._staging.begin(2 * new)[:] = where + firsts
        places, numbers = self._staging.send((new, new))
        self.table.view(-1).index_copy_(0, places, numbers)

    def runs(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """See :meth:`KVCache.runs`."""
        firsts, lengths = [], []
        for row, start, count in zip(rows, starts, counts, strict=True):
            end = start + count
            while start < end:
                stop = min(end, (start // BLOCK + 1) * BLOCK)
                firsts.append(self._entry(row, start))
                lengths.append(stop - start)
                start = stop
        return firsts, lengths

    def begin(
        self,
        rows: Sequence[int],  # noqa: ARG002
        starts: Sequence[int],
        counts: Sequence[int],
        entries: torch.Tensor | None,
        picked: torch.Tensor | None = None,
    ) -> None:
        """See :meth:`KVCache.begin`. Without ``picked``, a prompt attends to itself."""
        self._kv = max(start + count for start, count in zip(starts, counts, strict=True))
        self._entries = entries
        self._whole = picked is not None

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KVCache.update`; of a prompt that attends to itself, what is given."""
        found = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return found if self._whole else (key_states, value_states)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KVCache.read`: ``[1, heads, entries, width]``, the whole pool."""
        keys, values = self.flat(layer)
        return keys.transpose(0, 1)[None], values.transpose(0, 1)[None]

    # --- committing and growing -------------------------------------------------------------------

    def _entry(self, row: int, token: int) -> int:
        return self._own[row][token // BLOCK] * BLOCK + token % BLOCK

    def _grow(self, blocks: int) -> None:
        """Make the pool one of so many blocks at least, and copy what it holds."""
        before = self._blocks
        after = max(blocks, before + max(_GROWTH, before // 4), self._least)
        new = []
        for g, (plane, n) in enumerate(self._groups):
            shape = (n, after * BLOCK, plane.heads, plane.width)
            tensor = torch.zeros(shape, dtype=plane.dtype, device=plane.device)
            if before:
                tensor[:, : before * BLOCK] = self.tensors[g]
            new.append(tensor)
        self._take(new)
        self._blocks = after
        for block in range(max(1, before), after):
            heapq.heappush(self._unused, block)

    def _grow_table(self, rows: int, width: int) -> None:
        """Make room for more rows, or for more blocks of a row."""
        firsts = np.zeros((rows, width), dtype=np.int64)
        firsts[: len(self._own)] = self._firsts(range(len(self._own)), width)
        sent = torch.from_numpy(firsts)
        self.table = sent.clone() if self._device.type == "cpu" else sent.to(self._device)
        self.generation += 1

    def _firsts(self, rows: Sequence[int], blocks: int) -> NDArray[np.int64]:
        """First entries of the first blocks of rows, ``[b, blocks]``; 0 behind a row's last one."""
        found = np.zeros((len(rows), blocks), dtype=np.int64)
        for into, row in zip(found, rows, strict=True):
            own = self._own[row][:blocks]
            into[: len(own)] = own
        return found * BLOCK
