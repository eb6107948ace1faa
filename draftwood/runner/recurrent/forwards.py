"""One forward of a model with recurrent layers: which sequences its tokens are of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.errors import DraftwoodError
from draftwood.runner.recurrent.ancestry import Ancestry, ancestry

Place: TypeAlias = tuple[int, str]
"""Of a state: the index of its layer, and which of the layer's states it is."""

Path: TypeAlias = Sequence[int]
"""Nodes, each a child of the one before."""

Commit: TypeAlias = Callable[
    [torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor | None], None
]
"""Advances states in place: of what was kept of the nodes, over paths ``[b, m]``, of whose nodes
some may be padding (the others are named, if any are)."""


@dataclass(frozen=True, eq=False)
class KeptNodes:
    """What is kept of the nodes of a forward for one state.

    Attributes:
        tensors: ``[b, .., N, ..]`` each.
        dims: of the nodes in each tensor.
        commit: called with the state, the tensors, paths and what is valid in them.
    """

    tensors: tuple[torch.Tensor, ...]
    dims: tuple[int, ...]
    commit: Commit

    @property
    def node_bytes(self) -> int:
        """Bytes of a node of one tree."""
        pairs = zip(self.tensors, self.dims, strict=True)
        return sum(each.nbytes // (len(each) * each.shape[dim]) for each, dim in pairs)


@dataclass(frozen=True, eq=False)
class ChunkForward:
    """A forward over tokens that follow the slots' texts.

    Attributes:
        slots: of the sequences, whose tokens are one behind another.
        counts: tokens of each.
    """

    slots: Sequence[int]
    counts: Sequence[int]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Begin and end of each sequence's tokens."""
        return list(pairwise(accumulate(self.counts, initial=0)))


@dataclass(frozen=True, eq=False)
class TreeForward:
    """A forward over trees, with what is kept of their nodes.

    Attributes:
        slots: of the sequences, whose nodes are one behind another.
        parents: of all nodes of each tree.
        done: nodes of each tree that were computed before.
        device: the model's.
        before: of each sequence, the forward that computed these nodes and its place there;
            nothing when this forward has ended.
        kept: what was kept, by state.
    """

    slots: Sequence[int]
    parents: Sequence[Sequence[int]]
    done: Sequence[int]
    device: torch.device
    before: "list[tuple[TreeForward, int]]" = field(default_factory=list)
    kept: dict[Place, KeptNodes] = field(default_factory=dict)

    @cached_property
    def trees(self) -> Ancestry:
        """The trees, padded."""
        return ancestry(self.parents, self.done, self.device)

    @cached_property
    def counts(self) -> list[int]:
        """Nodes of each tree that are computed now."""
        return [len(own) - first for own, first in zip(self.parents, self.done, strict=True)]

    def of_slots(self, states: torch.Tensor) -> torch.Tensor:
        """The states of the sequences, to be read: a view of ``[slots, ..]``, or a copy."""
        together = _together(self.slots)
        if together is not None:
            return states[together]
        return states.index_select(0, self._numbers[0])

    @cached_property
    def _numbers(self) -> list[torch.Tensor]:
        """The slots, the token of each padded place, and the padded place of each token."""
        longest = max(self.counts)
        starts = list(accumulate(self.counts, initial=0))[:-1]
        # A place of the padding has some token: nobody reads what becomes of it.
        padded = [
            start + min(node, count - 1)
            for start, count in zip(starts, self.counts, strict=True)
            for node in range(longest)
        ]
        flat = [i * longest + node for i, count in enumerate(self.counts) for node in range(count)]
        return uploaded([np.array(each) for each in (self.slots, padded, flat)], self.device)

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """The tokens ``[n, ..]`` by sequence, ``[b, q, ..]``."""
        if len(self.slots) == 1:
            return x[None]
        found = x.index_select(0, self._numbers[1])
        return found.view(len(self.slots), -1, *x.shape[1:])

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`padded`."""
        if len(self.slots) == 1:
            return x[0]
        return x.flatten(0, 1).index_select(0, self._numbers[2])

    def keep(self, place: Place, kept: KeptNodes) -> None:
        """Keep what is needed of the nodes for a state.

        Raises:
            DraftwoodError: the layer has two such states.
        """
        if place in self.kept:
            raise DraftwoodError(
                f"layer {place[0]} has several recurrent states of one kind, which are not served; "
                "decode this model without draftwood"
            )
        # A view would keep all of what it is a part of.
        self.kept[place] = replace(kept, tensors=tuple(map(_alone, kept.tensors)))

    def part(self, chosen: Sequence[int]) -> "TreeForward":
        """A forward of some of its sequences, with a copy of what was kept of their nodes.

        Args:
            chosen: which sequences, by place in the forward.
        """
        parents = [self.parents[i] for i in chosen]
        found = TreeForward(
            [self.slots[i] for i in chosen], parents, [0] * len(parents), self.device
        )
        [index] = uploaded([np.array(chosen)], self.device)
        # Without the padding between the nodes that were computed before and the others.
        places = self.trees.places.index_select(0, index)[:, : max(map(len, parents))]
        for place, kept in self.kept.items():
            tensors = tuple(
                torch.take_along_dim(
                    tensor.index_select(0, index),
                    places.view(len(parents), *_ones(dim - 1), -1, *_ones(tensor.ndim - dim - 1)),
                    dim,
                )
                for tensor, dim in zip(kept.tensors, kept.dims, strict=True)
            )
            found.kept[place] = replace(kept, tensors=tensors)
        return found

    def earlier(self, place: Place) -> tuple[torch.Tensor, ...] | None:
        """What was kept of the nodes that were computed before; None if there are none."""
        if not self.trees.done:
            return None
        parts: list[list[torch.Tensor]] = []
        for (forward, i), count in zip(self.before, self.done, strict=True):
            kept = forward.kept[place]
            # Padding is a copy of a node.
            nodes = forward.trees.places[i, : max(1, count)]
            nodes = torch.cat([nodes, nodes[-1:].expand(self.trees.done - len(nodes))])
            parts.append(
                [
                    tensor[i].index_select(dim - 1, nodes)
                    for tensor, dim in zip(kept.tensors, kept.dims, strict=True)
                ]
            )
        return tuple(map(torch.stack, zip(*parts, strict=True)))

    @property
    def padded_nodes(self) -> int:
        """Nodes that are kept of each tree beyond those of the largest one."""
        return self.trees.parents.shape[1] - max(map(len, self.parents))

    def commit(
        self, states: Mapping[Place, torch.Tensor], chosen: Sequence[int], paths: Sequence[Path]
    ) -> None:
        """Advance the states of some of the sequences.

        Args:
            states: of all slots, by place.
            chosen: which sequences, by place in the forward.
            paths: of each of them, nodes from the root on.
        """
        longest = max(map(len, paths))
        nodes = [[*path, *[path[-1]] * (longest - len(path))] for path in paths]
        lengths, slots = list(map(len, paths)), [self.slots[i] for i in chosen]
        given = [np.array(each) for each in (nodes, lengths, slots, list(chosen))]
        where, length, index, trees = uploaded(given, self.device)
        path = self.trees.places.index_select(0, trees).gather(1, where)
        padded = any(count < longest for count in lengths)
        valid = torch.arange(longest, device=self.device) < length[:, None] if padded else None
        everyone = list(chosen) == list(range(len(self.slots)))
        together = _together(slots)
        for place, kept in self.kept.items():
            tensors = kept.tensors
            if not everyone:
                tensors = tuple(tensor.index_select(0, trees) for tensor in tensors)
            state = states[place]
            own = state.index_select(0, index) if together is None else state[together]
            kept.commit(own, tensors, path, valid)
            if together is None:
                state.index_copy_(0, index, own)


def _together(slots: Sequence[int]) -> slice | None:
    """Slots that lie one behind another; None: they do not."""
    first = slots[0]
    run = all(slot == first + i for i, slot in enumerate(slots))
    return slice(first, first + len(slots)) if run else None


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def _ones(count: int) -> list[int]:
    return [1] * count
