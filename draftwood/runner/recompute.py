"""A runner for models whose ``generate`` recomputes its cache when a text outgrows a length.

Phi-3 and similar models do this where their rotary factors change from short to long: beyond that
length the whole text has the long factors. A tree reaches the length before its text does, so the
nodes on the two sides need two caches of one text. While its trees straddle the limit, a sequence
has a second slot, its *twin*: the cache with the long factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache

from draftwood.protocols import Computed, Needs, Submitted, TargetOutput
from draftwood.runner.runner import Runner
from draftwood.tree import TokenTree


class RecomputingRunner(Runner):
    """A runner with twin slots; made by :func:`draftwood.runner.attach.attach`.

    Args:
        limit: longest text, in tokens, whose cache is not recomputed.
        parts: as for :class:`Runner`.
    """

    def __init__(self, limit: int, *parts: Any) -> None:
        super().__init__(*parts)
        self._last_kept = limit
        self._texts: dict[int, list[int]] = {}
        self._trees: dict[int, TokenTree] = {}
        self._twins: dict[int, _Twin] = {}

    def open(self, capacity: int) -> int:
        """See :meth:`Runner.open`."""
        slot = super().open(capacity)
        self._texts[slot] = []
        return slot

    def release(self, slot: int) -> None:
        """See :meth:`Runner.release`."""
        super().release(slot)
        del self._texts[slot]
        self._trees.pop(slot, None)
        self._drop_twin(slot)

    def roll_back(self, slot: int, length: int) -> None:
        """See :meth:`Runner.roll_back`."""
        before = self.length(slot)
        super().roll_back(slot, length)
        del self._texts[slot][length:]
        self._drop_twin(slot)
        if length <= self._limit < before:
            self._recompute(slot, min_extents=0)

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
        min_extents: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """See :meth:`Runner.prefill`; ``min_extents`` are computed here."""
        min_extents = [
            self._min_extent(slot, len(p)) for slot, p in zip(slots, prompts, strict=True)
        ]
        rows = super().prefill(slots, prompts, needs, hidden, min_extents)
        for slot, prompt in zip(slots, prompts, strict=True):
            self._texts[slot] += map(int, prompt)
        return rows

    def submit(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        numbers: NDArray[np.int64] | None = None,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
        min_extents: Sequence[int] = (),
    ) -> Submitted:
        """See :meth:`Runner.submit`; a second pass scores the nodes beyond the limit."""
        self._trees.update(zip(slots, trees, strict=True))
        lengths, limit = [self.length(slot) for slot in slots], self._limit
        beyond = [
            i
            for i, (length, tree) in enumerate(zip(lengths, trees, strict=True))
            if length <= limit <= length + tree.depth
        ]
        for i, slot in enumerate(slots):
            if i not in beyond and slot in self._twins:
                self._twins[slot].done = 0
        if not beyond:
            return super().submit(slots, trees, needs, numbers, done, hidden, unread, min_extents)
        done, unread = done or [0] * len(slots), unread or [0] * len(slots)
        near = [i for i in range(len(slots)) if lengths[i] != limit]
        found: dict[int, TargetOutput] = {}
        if near:
            rows = (
                super()
                .submit(
                    [slots[i] for i in near],
                    [trees[i] for i in near],
                    needs,
                    done=[done[i] for i in near],
                )
                .rows()
            )
            found.update(zip(near, rows, strict=True))
        twins = self._straddling([slots[i] for i in beyond])
        for i, twin in zip(beyond, twins, strict=True):
            twin.done = min(twin.done, done[i])
        last = super().submit(
            [twin.slot for twin in twins],
            [trees[i] for i in beyond],
            needs,
            numbers,
            [twin.done for twin in twins],
            min_extents=[limit + 1] * len(twins),
        )
        for i, twin, far in zip(beyond, twins, last.rows(), strict=True):
            far = _last(far, len(trees[i]) - done[i])
            positions = lengths[i] + trees[i].depths[done[i] :]
            found[i] = _joined(found[i], far, positions >= limit) if i in found else far
            twin.done = len(trees[i])
        read = [_last(found[i], len(tree) - done[i] - unread[i]) for i, tree in enumerate(trees)]
        return Computed(read, last.numbers)

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """See :meth:`Runner.commit`."""
        # Of a text of the limit's length only the twin was run: there is nothing to move.
        own: list[Sequence[int]] = [
            range(1, len(path) + 1) if self.length(slot) == self._limit else path
            for slot, path in zip(slots, paths, strict=True)
        ]
        super().commit(slots, own)
        both = [
            (self._twins[slot], path)
            for slot, path in zip(slots, paths, strict=True)
            if slot in self._twins and self._twins[slot].done
        ]
        if both:
            super().commit([twin.slot for twin, _ in both], [path for _, path in both])
        for slot, path in zip(slots, paths, strict=True):
            tokens = self._trees[slot].tokens
            self._texts[slot] += [int(tokens[node]) for node in (0, *path)]
            if slot in self._twins:
                self._twins[slot].done = 0
                if self.length(slot) > self._limit:
                    self.cache.swap_slots(slot, self._twins[slot].slot)
                    self._drop_twin(slot)

    @property
    def _limit(self) -> int:
        return self._last_kept - self._forward_pass.shift

    def _min_extent(self, slot: int, added: int) -> int:
        """The minimal extent of tokens added to a slot; recomputes the slot if it must be."""
        length = self.length(slot)
        if not length:
            return added
        if not length <= self._limit < length + added:
            return 0
        self._drop_twin(slot)
        self._recompute(slot, min_extents=self._limit + 1)
        return self._limit + 1

    def _straddling(self, slots: Sequence[int]) -> "list[_Twin]":
        """The slots' twins, brought up to date with their texts."""
        for slot in slots:
            if slot not in self._twins:
                self._twins[slot] = _Twin(super().open(len(self._texts[slot])))
        twins = [self._twins[slot] for slot in slots]
        behind = [
            (twin.slot, text[self.length(twin.slot) :])
            for twin, text in zip(twins, map(self._texts.__getitem__, slots), strict=True)
            if self.length(twin.slot) < len(text)
        ]
        if behind:
            min_extents = [self._limit + 1] * len(behind)
            super().prefill(
                [s for s, _ in behind], [t for _, t in behind], Needs(), min_extents=min_extents
            )
        return twins

    def _recompute(self, slot: int, min_extents: int) -> None:
        """Recompute a slot with the factors of texts of at least ``min_extent`` tokens."""
        super().roll_back(slot, 0)
        text = self._texts[slot]
        if text:
            super().prefill([slot], [text], Needs(), min_extents=[min_extents])

    def _drop_twin(self, slot: int) -> None:
        twin = self._twins.pop(slot, None)
        if twin is not None:
            super().release(twin.slot)


@dataclass
class _Twin:
    """A second slot, and how many nodes of the present tree it has scored."""

    slot: int
    done: int = 0


def recompute_limit(model: Any, lengths: Sequence[int], device: torch.device) -> int | None:
    """The longest text whose cache ``generate`` keeps; None if it never recomputes one.

    Found by calling the model's ``prepare_inputs_for_generation`` for texts of each of
    ``lengths``: it drops the cache that it is given. In transformers before 5.20 it then returns
    the last token alone, and ``generate`` goes on without the text; here the text is kept.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    prepare = getattr(base, "prepare_inputs_for_generation", None)
    if prepare is None:
        return None
    for length in lengths:
        ids = torch.zeros((1, length + 1), dtype=torch.int64, device=device)
        inputs = prepare(
            input_ids=ids,
            past_key_values=_Filled(length),
            attention_mask=torch.ones_like(ids),
            next_sequence_length=1,
            use_cache=True,
        )
        if inputs.get("past_key_values") is None or inputs["input_ids"].shape[1] > 1:
            return length
    return None


class _Filled(Cache):
    """A cache that only has a length."""

    def __init__(self, length: int) -> None:
        super().__init__(layers=[])
        self._length = length

    def __bool__(self) -> bool:
        return True

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return self._length


def _last(rows: TargetOutput, n: int) -> TargetOutput:
    """The output at the last ``n`` nodes."""
    features = None if rows.features is None else rows.features[-n:]
    return TargetOutput(
        rows.logits[-n:], rows.argmax[-n:], rows.top_tokens[-n:], rows.top_probs[-n:], features
    )


@torch.inference_mode()
def _joined(near: TargetOutput, far: TargetOutput, beyond: Any) -> TargetOutput:
    """The rows of ``far`` where ``beyond``, bool ``[n]``, is true, else those of ``near``."""
    column = beyond[:, None]
    there = torch.from_numpy(column).to(near.logits.device)
    joined = replace(near, logits=torch.where(there, far.logits, near.logits), features=None)
    if len(near.argmax):  # empty if nothing is read on the host
        joined = replace(
            joined,
            argmax=np.where(beyond, far.argmax, near.argmax),
            top_tokens=np.where(column, far.top_tokens, near.top_tokens),
            top_probs=np.where(column, far.top_probs, near.top_probs),
        )
    if near.features is None or far.features is None:
        return joined
    return replace(joined, features=torch.where(there, far.features, near.features))
