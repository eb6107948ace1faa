"""Attention of trees by a kernel on a GPU, which needs no masks.

What the kernel must know of a step are a few numbers a sequence and the ancestor words of its
nodes. They are uploaded with the token ids, so that nothing else differs from one step to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.kernels.gpu import AttendTrees, Seen
from draftwood.runner.attention import Visibility
from draftwood.runner.kernel_attention import KernelAttention
from draftwood.runner.masks import LayerKind, MaskPlan, Masks, one_or_all, unmasked
from draftwood.tree import WORD, TokenTree, ancestor_words


@dataclass(frozen=True, eq=False)
class SeenPlan:
    """What the queries of a batch see, as far as the host knows it.

    Attributes:
        counts: queries of each sequence.
        lengths: its cached tokens before the root of its tree.
        done: nodes of its tree that are cached too.
        words: int64 ``[n, w]``, the ancestor words of each query; w = 0: it sees all before it.
        depths: int64 ``[b, nodes]`` of all nodes; without nodes if the reach of all is unlimited.
        stand_ins: for the masks of each kind of layer, which tell a layer's kind by their size.
        kinds: of layers.
        kernel: computes the attention.
    """

    in_order: ClassVar[Sequence[bool]] = ()

    counts: Sequence[int]
    lengths: Sequence[int]
    done: Sequence[int]
    words: NDArray[np.int64]
    depths: NDArray[np.int64]
    stand_ins: Masks
    kinds: tuple[LayerKind, ...]
    kernel: AttendTrees

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """What is uploaded: of each sequence first query and queries, and the other fields."""
        starts = list(accumulate(self.counts, initial=0))[:-1]
        of_sequences = np.array([*starts, *self.counts, *self.lengths, *self.done])
        return np.concatenate([of_sequences, self.words.ravel(), self.depths.ravel()])

    def build(self, numbers: torch.Tensor) -> Masks:  # noqa: ARG002
        """See :class:`draftwood.runner.masks.MaskPlan`."""
        return self.stand_ins

    def attention(self, seen: Seen) -> KernelAttention:
        """The attention of a forward, given what its queries see."""
        return KernelAttention(seen, self.kinds, self.kernel)

    def seen(self, numbers: torch.Tensor, rows: torch.Tensor, table: torch.Tensor) -> Seen:
        """What the queries see, on the device.

        Args:
            numbers: :attr:`numbers` there.
            rows: int64 ``[b]``, row of each sequence in the cache's table.
            table: see :class:`draftwood.runner.block_cache.BlockCache`.
        """
        b = len(self.counts)
        sizes = (b, b, b, b, self.words.size, self.depths.size)
        starts, counts, lengths, done, words, depths = numbers.split(sizes)  # type: ignore[no-untyped-call]
        return Seen(
            starts,
            counts,
            lengths,
            done,
            rows,
            table,
            words.view(self.words.shape),
            depths.view(self.depths.shape),
            max(self.counts),
        )


class DeviceTrees:
    """What trees and prompts see, for a kernel on a GPU; a :class:`MaskBuilder` without masks.

    Args:
        kernel: computes the attention.
        kinds: the model's kinds of layers.
        group: query heads per key head.
        dtype: the model's.
        device: the model's.
    """

    #: The kernel takes queries as they are.
    padded = False

    def __init__(
        self,
        kernel: AttendTrees,
        kinds: tuple[LayerKind, ...],
        group: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.kernel = kernel
        self._kinds = kinds
        self._reach = min(kind.reach for kind in kinds)
        # The fused causal kernel of PyTorch takes neither float32 nor other grouped heads.
        self._causal = group == 1 or dtype.itemsize == 2
        self._unmasked = unmasked(kinds, dtype, device)
        # Models hand on a mask to each layer, but not the layer's kind: that is the mask's width.
        self._stand_ins = one_or_all(
            {
                kind.name: torch.zeros((1, 1, 1, 1 + i), dtype=dtype, device=device)
                for i, kind in enumerate(kinds)
            }
        )

    def build(
        self, lengths: Sequence[int], trees: Sequence[TokenTree], done: Sequence[int]
    ) -> tuple[Visibility, SeenPlan]:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        counts = [len(tree) - first for tree, first in zip(trees, done, strict=True)]
        nodes = max(map(len, trees))
        words = np.zeros((sum(counts), -(-nodes // WORD)), dtype=np.int64)
        depths = np.zeros((len(trees), nodes if self._reach < np.inf else 0), dtype=np.int64)
        begin = 0
        for tree, first, count, own_depths in zip(trees, done, counts, depths, strict=True):
            if own_depths.size:
                own_depths[: len(tree)] = tree.depths
            own = ancestor_words(tree.parents.tolist())[first:]
            words[begin : begin + count, : own.shape[1]] = own
            begin += count
        return Visibility.TREE, self._plan(counts, lengths, done, words, depths)

    def chunk(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[Visibility, MaskPlan]:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        if self.causal(starts, counts):
            return Visibility.CAUSAL, self._unmasked
        nothing = np.zeros((len(counts), 0), dtype=np.int64)
        words = np.zeros((sum(counts), 0), dtype=np.int64)
        return Visibility.CHUNK, self._plan(counts, starts, [0] * len(counts), words, nothing)

    def causal(self, starts: Sequence[int], counts: Sequence[int]) -> bool:
        """See :class:`draftwood.runner.masks.MaskBuilder`."""
        # PyTorch's kernel takes one prompt at a time.
        alone = self._causal and len(counts) == 1
        return alone and not starts[0] and counts[0] <= self._reach

    def _plan(
        self,
        counts: Sequence[int],
        lengths: Sequence[int],
        done: Sequence[int],
        words: NDArray[np.int64],
        depths: NDArray[np.int64],
    ) -> SeenPlan:
        facts = (self._stand_ins, self._kinds, self.kernel)
        return SeenPlan(counts, lengths, done, words, depths, *facts)
