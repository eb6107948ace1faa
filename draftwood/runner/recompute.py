"""A runner for models whose ``generate`` computes its cache anew where a text outgrows a length.

Phi-3 and its kin do so where their rotary factors change from the short to the long ones: from
there on the whole text has the long ones. A tree reaches that length before its text does, and the
nodes on the two sides need two caches of one text. So a sequence has a second slot, its *twin*, as
long as its trees straddle the limit: the cache that it will have afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import Cache

from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.runner import Runner
from draftwood.tree import TokenTree


class RecomputingRunner(Runner):
    """See the module; made by :func:`draftwood.runner.attach.attach`.

    Args:
        limit: longest text in tokens that goes on with the cache it has.
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
            self._again(slot, least=0)

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
        least: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """See :meth:`Runner.prefill`; ``least`` is as the text's length has it."""
        least = [self._least(slot, len(p)) for slot, p in zip(slots, prompts, strict=True)]
        rows = super().prefill(slots, prompts, needs, hidden, least)
        for slot, prompt in zip(slots, prompts, strict=True):
            self._texts[slot] += map(int, prompt)
        return rows

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        least: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """See :meth:`Runner.forward`; a second pass scores what lies beyond the limit."""
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
            return super().forward(slots, trees, needs, done, hidden, least)
        done = done or [0] * len(slots)
        near = [i for i in range(len(slots)) if lengths[i] != limit]
        found: dict[int, TargetOutput] = {}
        if near:
            rows = super().forward(
                [slots[i] for i in near],
                [trees[i] for i in near],
                needs,
                [done[i] for i in near],
            )
            found.update(zip(near, rows, strict=True))
        twins = self._straddling([slots[i] for i in beyond])
        for i, twin in zip(beyond, twins, strict=True):
            twin.done = min(twin.done, done[i])
        rows = super().forward(
            [twin.slot for twin in twins],
            [trees[i] for i in beyond],
            needs,
            [twin.done for twin in twins],
            least=[limit + 1] * len(twins),
        )
        for i, twin, far in zip(beyond, twins, rows, strict=True):
            far = _last(far, len(trees[i]) - done[i])
            positions = lengths[i] + trees[i].depths[done[i] :]
            found[i] = _joined(found[i], far, positions >= limit) if i in found else far
            twin.done = len(trees[i])
        return [found[i] for i in range(len(slots))]

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """See :meth:`Runner.commit`."""
        super().commit(slots, paths)
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
                    self.slab.exchange(slot, self._twins[slot].slot)
                    self._drop_twin(slot)

    @property
    def _limit(self) -> int:
        return self._last_kept - self._passes.shift

    def _least(self, slot: int, added: int) -> int:
        """The least extent of tokens added to a slot, whose text is computed anew if it must be."""
        length = self.length(slot)
        if not length:
            return added
        if not length <= self._limit < length + added:
            return 0
        self._drop_twin(slot)
        self._again(slot, least=self._limit + 1)
        return self._limit + 1

    def _straddling(self, slots: Sequence[int]) -> "list[_Twin]":
        """The twins of the slots, holding all of their texts."""
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
            least = [self._limit + 1] * len(behind)
            super().prefill([s for s, _ in behind], [t for _, t in behind], Needs(), least=least)
        return twins

    def _again(self, slot: int, least: int) -> None:
        """Compute what a slot holds anew, with the factors of texts of ``least`` tokens."""
        super().roll_back(slot, 0)
        text = self._texts[slot]
        if text:
            super().prefill([slot], [text], Needs(), least=[least])

    def _drop_twin(self, slot: int) -> None:
        twin = self._twins.pop(slot, None)
        if twin is not None:
            super().release(twin.slot)


@dataclass
class _Twin:
    """A second slot, and how many nodes of the growing tree were forwarded there."""

    slot: int
    done: int = 0


def recomputed_at(model: Any, lengths: Sequence[int], device: torch.device) -> int | None:
    """The longest text that ``generate`` continues on the cache it has, if it drops longer ones'.

    The model is asked what it would run on next, for texts around each of ``lengths``.
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
        if inputs["input_ids"].shape[1] > 1:
            return length
    return None


class _Filled(Cache):
    """A cache that says how many tokens it holds."""

    def __init__(self, length: int) -> None:
        super().__init__(layers=[])
        self._length = length

    def __bool__(self) -> bool:
        return True

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return self._length


def _last(rows: TargetOutput, n: int) -> TargetOutput:
    """The rows of the last ``n`` nodes."""
    features = None if rows.features is None else rows.features[-n:]
    return TargetOutput(
        rows.logits[-n:], rows.argmax[-n:], rows.top_tokens[-n:], rows.top_probs[-n:], features
    )


@torch.inference_mode()
def _joined(near: TargetOutput, far: TargetOutput, beyond: Any) -> TargetOutput:
    """The far rows of the nodes that are ``beyond``, bool ``[n]``, and the near ones of others."""
    column = beyond[:, None]
    there = torch.from_numpy(column).to(near.logits.device)
    joined = TargetOutput(
        torch.where(there, far.logits, near.logits),
        np.where(beyond, far.argmax, near.argmax),
        np.where(column, far.top_tokens, near.top_tokens),
        np.where(column, far.top_probs, near.top_probs),
    )
    if near.features is None or far.features is None:
        return joined
    return replace(joined, features=torch.where(there, far.features, near.features))
