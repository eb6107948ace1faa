"""Forwards of fixed shapes, which are recorded once and repeated.

A step of a large model on a GPU asks for a thousand kernels. That takes the host longer than the
device takes to run them, unless they are recorded: a CUDA graph repeats them in one call. It
repeats them as they were, with the same shapes and at the same addresses. So trees are padded to a
*bucket*: a number of nodes of all trees together, of sequences, and of nodes of one of them at
most. All that differs from one step to the next is in one buffer of numbers, which is uploaded
before each step. The padding lies behind the nodes and belongs to no sequence. It is written to one
spare entry of the cache, which nobody reads. Trees of a size that is rare run in a larger bucket.

The model is the unmodified one of transformers. What cannot be recorded (a layer that asks the
device for a number, say) is found when it is tried, and such a model's trees are not padded. What
the host decides in a forward is recorded with it: if adapters, hooks or weights change, forwards
are recorded anew (:func:`draftwood.runner.model_state.model_state`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import add
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood import recordings
from draftwood.copies import Staging
from draftwood.kernels.gpu import Seen
from draftwood.runner.attention import Step
from draftwood.runner.block_cache import SPARE, BlockCache
from draftwood.runner.device_trees import SeenPlan
from draftwood.runner.masks import Masks
from draftwood.runner.ramps import Ramps
from draftwood.runner.scored import Scored
from draftwood.runner.to_host import packed_rows
from draftwood.tree import WORD

logger = logging.getLogger(__name__)

NODES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
"""Nodes of a bucket. Beyond these, a forward takes longer than its launches."""
SEQUENCES = (1, 4, 16, 64, 128, 256)
LARGEST = (1, 4, 16, 64, 128)
"""Nodes of a bucket's largest tree: programs of the attention kernel are started for so many."""
MOST = NODES[-1]
_PATIENCE = 16
"""Forwards of a bucket in larger ones before it is recorded. That takes as long as dozens of steps,
and most sizes of trees are rare."""
_LARGER, _SMALL = 2, 64
"""Most nodes of such a larger bucket, relative to the bucket, and a number that is never too large.
Empty sequences take no time."""
_ROOM = 1 << 15
"""Numbers for which there is room from the beginning: a larger buffer has another address."""
_FAILURES, _SURE = 2, 512
"""Buckets that fail before no further one is tried, and the nodes up to which they count: one may
lack memory, and a large one may always."""

ModelCall: TypeAlias = Callable[
    [torch.Tensor, torch.Tensor, Masks, Step, tuple[int, ...], torch.Tensor | None], Scored
]
"""``call`` of :class:`draftwood.runner.forward.ForwardPass`, for all logits."""

Forward: TypeAlias = Callable[[], Scored]
"""A forward over a bucket, or what repeats it: the output is always in the same memory then."""


class Graphs(Protocol):
    """Records what a device is asked for."""

    def record(self, forward: Forward) -> Forward:
        """Call the forward, record it, and return what repeats it.

        Raises:
            Exception: it cannot be repeated.
        """
        ...

    def forget(self) -> None:
        """Take note that no recorded forward is used any more."""
        ...


class Bucket(NamedTuple):
    """The shapes of a recorded forward.

    Attributes:
        sequences: b.
        nodes: of all sequences, n.
        largest: nodes of a sequence at most.
        width: ancestor words of a node.
        depths: of each sequence, that are uploaded.
        taps: layers whose input is returned.
        vector_width: of the vector beside each token; 0 if the model takes none.
        top_k: tokens in the top-k of every row that the host reads; None: it reads no rows.
    """

    sequences: int
    nodes: int
    largest: int
    width: int
    depths: int
    taps: tuple[int, ...]
    vector_width: int
    top_k: int | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the numbers: token ids, positions and cache entries of the nodes; rows, and the
        fields of :class:`draftwood.kernels.gpu.Seen` from ``starts`` to ``depths``."""
        b, n = self.sequences, self.nodes
        return (n, n, n, b, b, b, b, b, n * self.width, b * self.depths)

    def holds(self, other: "Bucket") -> bool:
        """Whether the trees of another bucket can be run in this one, with more padding."""
        own, others = (each[:4] for each in (self, other))
        return (
            all(size >= least for size, least in zip(own, others, strict=True))
            and self.depths >= other.depths
            and bool(self.depths) == bool(other.depths)
            and self[5:] == other[5:]
        )


class StaticForward:
    """Runs trees in buckets.

    Args:
        call: calls the model.
        cache: its KV cache.
        device: where both are.
        graphs: records forwards; None: each forward is called as it is.
    """

    def __init__(
        self, call: ModelCall, cache: BlockCache, device: torch.device, graphs: Graphs | None
    ) -> None:
        self._call = call
        self._cache = cache
        self._graphs = graphs
        self._staging, self._others = Staging(device, _ROOM), Staging(device)
        self._ramps = Ramps()
        self._recorded: dict[Bucket, Forward | None] = {}
        self._padded: Counter[Bucket] = Counter()  # forwards of a bucket in larger ones
        self._vectors: dict[Bucket, torch.Tensor] = {}
        self._logits: torch.Tensor | None = None
        self._recorded_for: tuple[object, ...] = ()
        self._failures = 0  # one after another
        self._succeeded = False

    #: What else a recorded forward depends on, such as adapters; see :meth:`Runner.open`.
    model_state: object = None

    @property
    def refused(self) -> bool:
        """Whether the model cannot be recorded: two buckets failed, and none can be repeated."""
        return self._failures >= _FAILURES and not any(self._recorded.values())

    def run(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        plan: SeenPlan,
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        taps: tuple[int, ...],
        keep: Sequence[int],
        hidden: torch.Tensor | None,
        further: NDArray[np.int64],
        top_k: int | None = None,
    ) -> tuple[Scored, torch.Tensor] | None:
        """Run the model over trees.

        Args:
            rows: cache row of each sequence, ascending.
            starts: first cache entry that each sequence writes.
            plan: what its nodes see.
            ids: ``[n]``, of all nodes.
            positions: of the nodes.
            taps: layers whose input hidden states are returned.
            keep: positions in ``[n]`` whose logits are returned; none: all.
            hidden: ``[1, n, H]`` for a model that takes a vector beside each token.
            further: numbers for others.
            top_k: tokens in the top-k of every row that the host reads; None: it reads no rows.

        Returns:
            The output and the further numbers on the device; None if there is no bucket for such
            trees, or the model cannot be recorded.
        """
        bucket = bucket_for(plan, taps, 0 if hidden is None else hidden.shape[-1], top_k)
        if bucket is None or self.refused:
            return None
        cache, counts = self._cache, plan.counts
        cache.make_room(rows, list(map(add, starts, counts)))
        self._forget_if_changed()
        bucket = self._at_hand(bucket)
        n = len(ids)
        long = len(further) > _ROOM // 2  # would move the others
        sizes = (*bucket.sizes, len(keep), 0 if long else len(further))
        parts = np.split(self._staging.begin(sum(sizes)), np.cumsum(sizes)[:-1])
        self._fill(bucket, parts, rows, starts, plan)
        parts[0][:n], parts[1][:n] = ids, positions
        parts[-2][:] = keep
        if long:
            self._others.begin(len(further))[:] = further
        else:
            parts[-1][:] = further
        sent = self._staging.send(sizes)
        uploaded = self._others.send((len(further),))[0] if long else sent[-1]
        cache.begin(rows, starts, counts, sent[2], sent[3])
        if hidden is not None:
            self._vector(bucket, hidden)[:, :n].copy_(hidden)
        forward = self._forward(bucket, sent, plan)
        if forward is None:
            return None
        # A copy, as the next forward of this bucket writes to the same memory.
        return forward().first(n, sent[-2] if keep else None), uploaded

    def _at_hand(self, bucket: Bucket) -> Bucket:
        """A larger bucket that is recorded, as long as the trees' own one was seldom asked for."""
        often = self._padded[bucket] >= _PATIENCE or recordings.are_at_once()
        if often or bucket in self._recorded:
            return bucket
        most = max(_SMALL, _LARGER * bucket.nodes)
        larger = [
            each
            for each, forward in self._recorded.items()
            if forward is not None and each.nodes <= most and each.holds(bucket)
        ]
        if not larger:
            return bucket
        self._padded[bucket] += 1
        return min(larger, key=lambda each: (each.nodes, each.largest, each.sequences))

    def _forget_if_changed(self) -> None:
        """Forget what was recorded for other memory, or for the model in another state."""
        state = (self._cache.generation, self._staging.generation, self.model_state)
        if state != self._recorded_for:
            self._recorded.clear()
            if self._succeeded:  # what has failed may have lacked memory
                self._failures = 0
            if self._graphs is not None:
                self._graphs.forget()
        self._recorded_for = state

    def _fill(
        self,
        bucket: Bucket,
        parts: Sequence[NDArray[np.int64]],
        rows: Sequence[int],
        starts: Sequence[int],
        plan: SeenPlan,
    ) -> None:
        """Write what the nodes are, but for their tokens and positions."""
        b, n = len(rows), sum(plan.counts)
        ids, positions, entries, row, first, count, length, done, words, depths = parts[:10]
        for part in (ids, positions, first, count, length, done, words, depths):
            part[:] = 0
        entries[n:] = SPARE
        self._ramps.write(*self._cache.runs(rows, starts, plan.counts), entries)
        row[:] = rows[0]
        row[:b] = rows
        first[:b] = list(accumulate(plan.counts, initial=0))[:-1]
        count[:b], length[:b], done[:b] = plan.counts, plan.lengths, plan.done
        words.reshape(len(ids), bucket.width)[:n, : plan.words.shape[1]] = plan.words
        of_sequences = depths.reshape(bucket.sequences, bucket.depths)
        of_sequences[:b, : plan.depths.shape[1]] = plan.depths

    def _forward(
        self, bucket: Bucket, sent: Sequence[torch.Tensor], plan: SeenPlan
    ) -> Forward | None:
        """The forward of a bucket, recorded if it can be; None if that has failed."""
        self._forget_if_changed()  # the buffer may have grown
        if bucket in self._recorded:
            return self._recorded[bucket]
        ids, positions, _, rows, starts, counts, lengths, done, words, depths = sent[:10]
        seen = Seen(
            starts,
            counts,
            lengths,
            done,
            rows,
            self._cache.table,
            words.view(-1, bucket.width),
            depths.view(bucket.sequences, bucket.depths),
            bucket.largest,
            padded=True,
        )
        given = (ids[None], positions[None], plan.stand_ins, plan.attention(seen), bucket.taps)
        call = partial(self._call, *given, self._vectors.get(bucket))
        forward = partial(self._kept, call, bucket.top_k)
        if self._graphs is None:
            return forward
        if self._failures >= _FAILURES:
            return None
        found = None
        recordings.note()
        try:
            found = self._graphs.record(forward)
            self._failures, self._succeeded = 0, True
        except Exception as error:  # noqa: BLE001 - of CUDA, Triton or the model
            logger.warning("forwards are not recorded, which takes longer: %s", error)
            self._failures += bucket.nodes <= _SURE
        finally:
            recordings.note()
        self._recorded[bucket] = found
        return found

    def _kept(self, call: Forward, top_k: int | None) -> Scored:
        """Call the model and move its logits to memory that all buckets share."""
        logits, features, _ = call()
        if self._logits is None:
            self._logits = logits.new_empty(MOST, logits.shape[1])
        kept = self._logits[: len(logits)]
        packed = None if top_k is None else packed_rows(logits, top_k)
        return Scored(kept.copy_(logits), features, packed)

    def _vector(self, bucket: Bucket, hidden: torch.Tensor) -> torch.Tensor:
        """The memory of the vectors beside a bucket's tokens, ``[1, n, H]``."""
        found = self._vectors.get(bucket)
        if found is None:
            zeros = hidden.new_zeros(1, bucket.nodes, bucket.vector_width)
            found = self._vectors[bucket] = zeros
        return found


def bucket_for(
    plan: SeenPlan, taps: tuple[int, ...], vector_width: int, top_k: int | None = None
) -> Bucket | None:
    """The smallest bucket for trees; None if they are too large for one."""
    asked = (len(plan.counts), sum(plan.counts), max(plan.counts))
    fitting = [
        next((size for size in sizes if size >= least), None)
        for sizes, least in zip((SEQUENCES, NODES, LARGEST), asked, strict=True)
    ]
    sequences, nodes, largest = fitting
    if sequences is None or nodes is None or largest is None:
        return None
    width = 1 << (plan.words.shape[1] - 1).bit_length()
    depths = WORD * width if plan.depths.shape[1] else 0
    return Bucket(sequences, nodes, largest, width, depths, taps, vector_width, top_k)
