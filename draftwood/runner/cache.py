"""The KV cache of a model, by slots: what all layouts of its entries have in common.

Keys and values of all layers with equal heads and head width share one tensor (for a uniform model
its first dimension runs over layer 0's keys, layer 0's values, layer 1's keys, ...). An *entry* is
one token's place in it. Rolling back changes a length only. Keeping an accepted path is one gather
per tensor. A slot has a row, in which its tokens are numbered from 0; where a row's entries lie is
the layout's business: :class:`draftwood.runner.row_cache.RowCache` has them behind one another,
:class:`draftwood.runner.block_cache.BlockCache` in blocks of one pool.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache

from draftwood.errors import DraftwoodError
from draftwood.protocols import SavedTokens


@dataclass(frozen=True)
class Plane:
    """Shape and dtype of one layer's keys, or of its values: ``heads`` x ``width`` per token."""

    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device


class WithoutStates(Cache):
    """What recurrent layers ask of a cache, of one that keeps no states for them.

    :mod:`draftwood.runner.recurrent` has their states.
    """

    def get_conv_state(self, *_args: Any, **_kwargs: Any) -> None:
        """None: a recurrent layer then takes its way for several tokens."""

    def get_recurrent_state(self, *_args: Any, **_kwargs: Any) -> None:
        """None, likewise."""

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_kwargs: Any
    ) -> torch.Tensor:
        """The inputs, as they are."""
        self.noted(layer_idx, state_idx)
        return conv_states

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_kwargs: Any
    ) -> torch.Tensor:
        """The state, as it is."""
        self.noted(layer_idx, state_idx)
        return recurrent_states

    def noted(self, layer: int, state: int) -> None:
        """Called when a layer has updated one of its states."""

    def is_recording_past(self, *_args: Any, **_kwargs: Any) -> bool:
        """No."""
        return False

    def has_previous_state(self, *_args: Any, **_kwargs: Any) -> bool:
        """No."""
        return False


class KVCache(WithoutStates, ABC):
    """The KV cache of one model.

    Args:
        layers: planes of the keys and of the values of every layer, in order; of a layer that
            stores none, the index of the layer whose keys and values it reads, or None if it has
            no attention.

    Attributes:
        planes: the layers' planes, as given.
        generation: changes when the tensors are new ones.
        tensors: of all planes of one kind, ``[n, .., heads, width]``; each tensor's entries are
            numbered through.
    """

    #: Whether every forward is told the entries that it writes.
    by_index: bool = False

    #: Entries of a block of the pool that a kernel reads; 0: there is no pool.
    block: int = 0

    def __init__(self, layers: Sequence[tuple[Plane, Plane] | int | None]) -> None:
        super().__init__(layers=[])
        self.planes = tuple(layers)
        pairs = {layer: pair for layer, pair in enumerate(layers) if isinstance(pair, tuple)}
        planes = [plane for pair in pairs.values() for plane in pair]
        firsts = {layer: 2 * i for i, layer in enumerate(pairs)}
        self._keys = {
            layer: firsts[pair if isinstance(pair, int) else layer]
            for layer, pair in enumerate(layers)
            if pair is not None
        }
        kinds = list(dict.fromkeys(planes))
        self._groups = [(kind, planes.count(kind)) for kind in kinds]
        seen = dict.fromkeys(kinds, 0)
        self._places: list[tuple[int, int]] = []
        for plane in planes:
            self._places.append((kinds.index(plane), seen[plane]))
            seen[plane] += 1
        self.generation = 0
        self.tensors: list[torch.Tensor] = []
        self._flats: list[torch.Tensor] = []
        self._entries: torch.Tensor | None = None
        self._kv = 0
        self._row: dict[int, int] = {}  # by slot
        self._lengths: list[int] = []  # by row

    # --- slots ------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, capacity: int) -> int:
        """Open a slot for up to ``capacity`` tokens; it grows if it must hold more."""

    @abstractmethod
    def release(self, slot: int) -> None:
        """Close a slot."""

    @abstractmethod
    def trim(self) -> None:
        """Give back all memory, if no slot is open."""

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

    @property
    def slots(self) -> int:
        """Number of open slots."""
        return len(self._row)

    @property
    def size(self) -> int:
        """Entries for which there is memory."""
        return len(self._flats[0]) if self._flats else 0

    def _named(self, row: int) -> int:
        """A new slot's number, the smallest of no open slot; it stays the same if its row changes.

        It follows from the open slots alone, so that an interrupt cannot leave it wrong.
        """
        slot = next(number for number in range(len(self._row) + 1) if number not in self._row)
        self._row[slot] = row
        return slot

    def swap_slots(self, one: int, other: int) -> None:
        """Swap what two slots hold: their rows."""
        self._row[one], self._row[other] = self.row(other), self.row(one)

    @abstractmethod
    def saved(self, slot: int, length: int) -> SavedTokens:
        """A copy of the first entries of a slot, each tensor ``[n, length, heads, width]``."""

    @abstractmethod
    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """Begin an empty slot with the first ``length`` saved entries."""

    @abstractmethod
    def lend(self, lender: int, slot: int, length: int) -> None:
        """Begin an empty slot with the first entries of another one."""

    @abstractmethod
    def held(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of some slots' tokens, ``[b, heads, n, width]``, n of the longest.

        They are views where the entries allow it, else copies. Behind a shorter slot's tokens lies
        anything finite.
        """

    # --- one forward ------------------------------------------------------------------------------

    @abstractmethod
    def make_room(self, rows: Sequence[int], ends: Sequence[int]) -> None:
        """Make room for the tokens of each row before its end."""

    @abstractmethod
    def runs(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Entries of ``counts`` tokens of each row from its start on, as runs.

        Returns:
            First entry and length of each run of entries that lie behind one another.
        """

    @abstractmethod
    def begin(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        entries: torch.Tensor | None,
        picked: torch.Tensor | None = None,
    ) -> None:
        """Set the entries that the next forward writes and reads.

        Args:
            rows: row of every sequence of the batch, ascending.
            starts: number of each sequence's first token that is written.
            counts: of its tokens that are written.
            entries: int64 ``[n]`` on the device, of every token; None for one sequence, whose
                entries lie behind one another, unless :attr:`by_index`.
            picked: int64 ``[b]`` on the device, the rows, if they do not lie behind one another or
                a kernel looks them up.
        """

    @abstractmethod
    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[.., heads, .., width]`` of a layer that the present forward reads."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, heads, n, width]`` keys and values; return what :meth:`read` does."""
        flats, k = self._flats, self._keys[layer_idx]
        entries = self._entries
        assert entries is not None
        flats[k].index_copy_(0, entries, key_states.transpose(1, 2).flatten(0, 1))
        flats[k + 1].index_copy_(0, entries, value_states.transpose(1, 2).flatten(0, 1))
        return self.read(layer_idx)

    @property
    def written(self) -> torch.Tensor | None:
        """The entries that the present forward writes, int64 ``[n]``; None: a row's next ones."""
        return self._entries

    def flat(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, ``[entries, heads, width]``; new when the cache grows."""
        k = self._keys[layer]
        return self._flats[k], self._flats[k + 1]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Tokens of the longest sequence in the current forward; used without positions only."""
        return self._kv

    # --- committing -------------------------------------------------------------------------------

    @abstractmethod
    def _entry(self, row: int, token: int) -> int:
        """The entry of a row's token."""

    def advance(
        self, slots: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[int]]:
        """Append each slot's root and path; returns the sources and targets for :meth:`move`."""
        sources: list[int] = []
        targets: list[int] = []
        for slot, path in zip(slots, paths, strict=True):
            row = self.row(slot)
            length = self._lengths[row]
            for depth, node in enumerate(path, 1):
                if node != depth:
                    sources.append(self._entry(row, length + node))
                    targets.append(self._entry(row, length + depth))
            self._lengths[row] += len(path) + 1
        return sources, targets

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy entries (int64 on the device) in every layer."""
        for (plane, n), tensor in zip(self._groups, self.tensors, strict=True):
            flat = tensor.view(n, -1, plane.heads, plane.width)
            flat.index_copy_(1, targets, flat.index_select(1, sources))

    def _take(self, tensors: list[torch.Tensor]) -> None:
        """Use new tensors from now on, or none."""
        self.generation += 1
        self.tensors, self._flats = tensors, []
        if tensors:
            flats = [
                tensor.view(n, -1, plane.heads, plane.width).unbind(0)
                for (plane, n), tensor in zip(self._groups, tensors, strict=True)
            ]
            self._flats = [flats[group][i] for group, i in self._places]
