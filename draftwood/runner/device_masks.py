"""Additive attention masks that are built on a device, from a few numbers a node.

The mask of a node takes as many numbers as there are keys. What differs from one step to the next
is less: its sequence's length, and a bit for each node of the tree, its *ancestor words*. These
are uploaded with the token ids, and the masks are computed from them where they are needed, once a
forward for all layers. Queries are padded to the longest tree of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.runner.attention import Visibility
from draftwood.runner.masks import LayerKind, MaskPlan, Masks, hidden_in_chunk, one_or_all, unmasked
from draftwood.tree import WORD, TokenTree, ancestor_words

_WIDTHS = 16
"""Rows of a mask begin at multiples of so many numbers: attention copies others in each layer."""


class _Shape(NamedTuple):
    """Of the masks of a forward: sequences, padded queries, nodes, words a node, and keys."""

    b: int
    q: int
    nodes: int
    words: int
    kv: int


@dataclass(frozen=True, eq=False)
class TreePlan:
    """The masks of a batch of trees.

    Attributes:
        numbers: int64: of each sequence the cached tokens, the nodes, and those that are cached;
            of each node the depth ``[b, nodes]``; of each query its words ``[b, q, words]``.
        shape: of the masks.
        kinds: of layers, each with whether its reach hides a key.
        group: query heads per key head.
        dtype: of the masks.
    """

    in_order: ClassVar[Sequence[bool]] = ()

    numbers: NDArray[np.int64]
    shape: _Shape
    kinds: tuple[tuple[LayerKind, bool], ...]
    group: int
    dtype: torch.dtype

    def build(self, numbers: torch.Tensor) -> Masks:
        """See :class:`draftwood.runner.masks.MaskPlan`."""
        b, q, nodes, words, kv = self.shape
        lengths, counts, done, depths, bits = numbers.split(  # type: ignore[no-untyped-call]
            (b, b, b, b * nodes, b * q * words)
        )
        lengths, depths = lengths[:, None], depths.view(b, nodes)
        keys = torch.arange(kv, device=numbers.device)
        place = keys - lengths
        own = (place >= 0) & (place < counts[:, None])
        node = place.clamp(0, nodes - 1)
        word = (node // WORD)[:, None].expand(b, q, kv)
        found = bits.view(b, q, words).gather(2, word) >> (node % WORD)[:, None]
        shown = torch.where(own[:, None], (found & 1).bool(), (place < 0)[:, None])
        if any(limited for _, limited in self.kinds):
            positions = torch.where(own, lengths + depths.gather(1, node), keys)
            query = (done[:, None] + torch.arange(q, device=numbers.device)).clamp(max=nodes - 1)
            at = lengths + depths.gather(1, query)
        masks = {}
        for kind, limited in self.kinds:
            hidden = ~shown
            if limited:
                hidden |= kind.hidden(at[:, :, None], positions[:, None])
            masks[kind.name] = additive(hidden, self.group, self.dtype)
        return one_or_all(masks)


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """The masks of a chunk of prompts: each token sees those before it.

    Attributes:
        numbers: int64 ``[b]``, the cached tokens of each sequence.
        q: tokens of the longest chunk.
        kv: keys of the longest sequence.
        kinds: of layers.
        group: query heads per key head.
        dtype: of the masks.
    """

    in_order: ClassVar[Sequence[bool]] = ()

    numbers: NDArray[np.int64]
    q: int
    kv: int
    kinds: tuple[LayerKind, ...]
    group: int
    dtype: torch.dtype

    def build(self, numbers: torch.Tensor) -> Masks:
        """See :class:`draftwood.runner.masks.MaskPlan`."""
        masks = {}
        for kind in self.kinds:
            hidden = hidden_in_chunk(kind, numbers, self.q, self.kv)
            masks[kind.name] = additive(hidden, self.group, self.dtype)
        return one_or_all(masks)


def additive(hidden: torch.Tensor, group: int, dtype: torch.dtype) -> torch.Tensor:
    """The mask ``[b, 1, group * q, kv]`` of hidden keys ``[b, q, kv]``."""
    b, q, kv = hidden.shape
    width = -(-kv // _WIDTHS) * _WIDTHS
    mask = torch.zeros(b, group, q, width, dtype=dtype, device=hidden.device)[..., :kv]
    mask.masked_fill_(hidden[:, None], -torch.inf)
    return mask.flatten(1, 2)[:, None]


class DeviceMasks:
    """Masks of trees and prompts on a device.

    Args:
        kinds: the model's kinds of layers.
        group: query heads per key head, g; the most of all layers, others read the first rows.
        dtype: the model's; a hidden key gets minus infinity.
        device: the model's.
    """

    #: Queries are padded to the longest tree.
    padded = True

    def __init__(
        self, kinds: tuple[LayerKind, ...], group: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._kinds = kinds
        self._group = group
        self._dtype = dtype
        self._reach = min(kind.reach for kind in kinds)
        # The fused causal kernel takes neither float32 nor, with a mask, grouped heads.
        self._causal = group == 1 or dtype.itemsize == 2
        self._unmasked = unmasked(kinds, dtype, device)

    def build(
        self, lengths: Sequence[int], trees: Sequence[TokenTree], done: Sequence[int]
    ) -> tuple[Visibility, MaskPlan]:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        b = len(trees)
        sizes = list(map(len, trees))
        counts = [size - first for size, first in zip(sizes, done, strict=True)]
        ends = list(map(add, lengths, sizes))
        # One node below a chain, or a root alone.
        if b == 1 and counts[0] == 1 and trees[0].depth == done[0] and ends[0] <= self._reach:
            return Visibility.OPEN, self._unmasked
        q, nodes, kv = max(counts), max(sizes), max(ends)
        shape = _Shape(b, q, nodes, -(-nodes // WORD), kv)
        numbers = np.zeros(b * (3 + nodes + q * shape.words), dtype=np.int64)
        numbers[: 3 * b] = [*lengths, *sizes, *done]
        depths = numbers[3 * b : b * (3 + nodes)].reshape(b, nodes)
        words = numbers[b * (3 + nodes) :].reshape(b, q, shape.words)
        for i, (tree, first) in enumerate(zip(trees, done, strict=True)):
            depths[i, : len(tree)] = tree.depths
            own = ancestor_words(tree.parents.tolist())[first:]
            words[i, : len(own), : own.shape[1]] = own
        deepest = max(length + tree.depth for length, tree in zip(lengths, trees, strict=True))
        kinds = tuple((kind, deepest >= kind.reach) for kind in self._kinds)
        return Visibility.TREE, TreePlan(numbers, shape, kinds, self._group, self._dtype)

    def chunk(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[Visibility, MaskPlan]:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        if self.causal(starts, counts):
            return Visibility.CAUSAL, self._unmasked
        q, kv = max(counts), max(map(add, starts, counts))
        given = np.array(starts, dtype=np.int64)
        return Visibility.TREE, ChunkPlan(given, q, kv, self._kinds, self._group, self._dtype)

    def causal(self, starts: Sequence[int], counts: Sequence[int]) -> bool:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        return self._causal and not any(starts) and max(counts) <= self._reach
