"""Runs a Hugging Face causal language model over batches of token trees.

Positions are the cached length plus the depth, every node sees its own ancestors, and one forward
scores all trees. Knows nothing of how trees are drafted or which path is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import add
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, TargetInfo, TargetOutput
from draftwood.runner.cache import KVCache
from draftwood.runner.eager import is_compiled
from draftwood.runner.forward import Passes, Staging, tapped
from draftwood.runner.harvest import hand_over
from draftwood.runner.masks import TreeMasks
from draftwood.runner.prefill import prefill
from draftwood.tree import TokenTree


class Runner:
    """A :class:`draftwood.protocols.Target`; made by :func:`draftwood.runner.attach.attach`.

    Args:
        model: the attached model.
        info: what the parts may know of it.
        slab: its cache.
        masks: its mask buffers.
        passes: runs the model.
        chunk: prompt tokens per sequence and prefill forward.
        undo: takes the attachment back.
        refresh: brings the weights' layout up to date with what became of them meanwhile.
    """

    #: Hand over by ``torch.topk``, the plain twin of the two-stage search.
    plain_topk: bool = False

    def __init__(
        self,
        model: Any,
        info: TargetInfo,
        slab: KVCache,
        masks: TreeMasks,
        passes: Passes,
        chunk: int,
        undo: Callable[[], None],
        refresh: Callable[[], None],
    ) -> None:
        self.model = model
        self.slab = slab
        self.masks = masks
        self.chunk = chunk
        self._info = info
        self._undo: Callable[[], None] | None = undo
        self._refresh = refresh
        self._passes = passes
        self._moves = Staging(2, info.device)

    @property
    def info(self) -> TargetInfo:
        """What the parts may know of the target model."""
        return self._info

    def detach(self) -> None:
        """Undo the attachment; the model is again what it was. Further calls do nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def open(self, capacity: int) -> int:
        """Reserve a slot for a request that will cache up to ``capacity`` tokens; its number.

        Raises:
            DraftwoodError: the model was detached, or put into training mode.
        """
        if self._undo is None:
            raise DraftwoodError("the model was detached; attach it again before decoding")
        if self.model.training:
            raise DraftwoodError("the model was put into training mode; call model.eval() first")
        self._refresh()
        self._passes.compiled = is_compiled(self.model)
        return self.slab.open(capacity)

    def release(self, slot: int) -> None:
        """Give the slot back."""
        self.slab.release(slot)

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        return self.slab.length(slot)

    def embedding(self) -> torch.nn.Module:
        """The module that turns token ids into ``[.., H]`` embeddings."""
        module: torch.nn.Module = self.model.get_input_embeddings()
        return module

    def lm_head(self) -> torch.nn.Module | None:
        """The module that turns the last hidden states into logits."""
        module: torch.nn.Module | None = self.model.get_output_embeddings()
        return module

    def roll_back(self, slot: int, length: int) -> None:
        """Forget all but the slot's first ``length`` tokens.

        Raises:
            DraftwoodError: fewer than ``length`` tokens are cached.
        """
        if not 0 <= length <= self.slab.length(slot):
            raise DraftwoodError(
                f"slot {slot} holds {self.slab.length(slot)} tokens and cannot be cut to {length}"
            )
        self.slab.resize(slot, length)

    @contextmanager
    def examined(self, shift: int, chunk: int | None) -> Iterator[None]:
        """A context in which texts begin at position ``shift``; for the self-test only.

        Args:
            shift: position of a text's first token.
            chunk: prompt tokens per sequence and prefill forward; None: as usual.
        """
        usual = self.chunk
        self._passes.shift, self.chunk = shift, chunk or usual
        try:
            yield
        finally:
            self._passes.shift, self.chunk = 0, usual

    @torch.inference_mode()
    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
        least: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """Cache every prompt behind what its slot holds, and return its rows.

        See :meth:`draftwood.protocols.Target.prefill`, and
        :class:`draftwood.protocols.DraftModel` for ``hidden``. Where rotary factors depend on
        the length of the text, that is the length of a prompt in an empty slot, and the place of
        each token in one that continues another; or ``least``, where that is more.

        Raises:
            DraftwoodError: a prompt is empty, a slot is not open, or it is named twice.
        """
        if not least:
            least = [
                0 if self.slab.length(slot) else len(prompt)
                for slot, prompt in zip(slots, prompts, strict=True)
            ]
        return prefill(
            self.slab,
            self.masks,
            self._passes,
            slots,
            prompts,
            needs,
            self.chunk,
            hidden,
            self.plain_topk,
            least,
        )

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        least: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """Score every node of every tree in one forward pass. The cache is not advanced.

        ``logits`` of a tree of n nodes are ``[n, V]`` in the model's dtype. For ``done`` and
        ``hidden`` see :class:`draftwood.protocols.DraftModel`, for ``least`` :meth:`prefill`.

        Raises:
            DraftwoodError: a slot is not open, or is named twice.
        """
        slab, b = self.slab, len(trees)
        rows = [slab.row(slot) for slot in slots]
        done = done or [0] * b
        order = [0]
        if b > 1:
            order = sorted(range(b), key=rows.__getitem__)
            slots, trees = [slots[i] for i in order], [trees[i] for i in order]
            rows, done = [rows[i] for i in order], [done[i] for i in order]
            hidden = [hidden[i] for i in order] if hidden else ()
            least = [least[i] for i in order] if least else ()
            if len(set(rows)) < b:
                raise DraftwoodError("a slot is named twice in one forward; give it one tree")
        lengths = [slab.length(slot) for slot in slots]
        starts = list(map(add, lengths, done))
        counts = [len(tree) - first for tree, first in zip(trees, done, strict=True)]
        q = max(counts)
        kv = max(starts) + q
        slab.reserve(0, kv)

        ids, positions = self._passes.lanes(b, q)
        for i, tree in enumerate(trees):
            n, first = counts[i], done[i]
            ids[i, :n] = tree.tokens[first:]
            np.add(tree.depths[first:], lengths[i], out=positions[i, :n])
            if n < q:
                ids[i, n:], positions[i, n:] = 0, lengths[i]
        step, mask = self.masks.build(lengths, trees, q, kv, done)
        with torch.inference_mode():
            given = pad_sequence(list(hidden), batch_first=True) if hidden else None
            output = self._passes.run(
                rows, starts, kv, step, mask, needs.taps, hidden=given, least=least
            )
            logits, features = output.logits, tapped(output, needs.taps)
            argmax, tokens, probs = hand_over(logits, needs.top_k, self.plain_topk)
            if b == 1:
                features = None if features is None else features[0]
                return [TargetOutput(logits[0], argmax[0], tokens[0], probs[0], features)]
            found = [
                TargetOutput(
                    logits[i, :n],
                    argmax[i, :n],
                    tokens[i, :n],
                    probs[i, :n],
                    None if features is None else features[i, :n],
                )
                for i, n in enumerate(counts)
            ]
        return [found[place] for place in sorted(range(b), key=order.__getitem__)]

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the root and the nodes of each path (root excluded) of the last forward."""
        sources, targets = self.slab.advance(slots, paths)
        if sources:
            lanes = self._moves.lanes(len(sources))
            lanes[0], lanes[1] = sources, targets
            with torch.inference_mode():
                self.slab.move(*self._moves.send())
