"""Runs a Hugging Face causal language model over batches of token trees.

One forward scores all trees of a batch. A node's position is the cached length plus its depth. A
node sees the cached tokens, its ancestors and itself.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import Staging
from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, SavedTokens, Submitted, TargetInfo, TargetOutput
from draftwood.runner.autocast import refuse_autocast
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.int8 import Int8Linear
from draftwood.runner.cpu.packing import PackedLinear
from draftwood.runner.eager import is_compiled
from draftwood.runner.forward import ForwardPass
from draftwood.runner.masks import TreeMasks
from draftwood.runner.model_state import changes_in_place, model_state
from draftwood.runner.place import attention_of, place_of
from draftwood.runner.prefill import CHUNK, ChunkedPrefill, PendingPrompt
from draftwood.runner.recurrent.states import MOST_SNAPSHOTS, TAIL, RecurrentStates
from draftwood.runner.submitted import SubmittedForward
from draftwood.tree import TokenTree, tree_of


class Companion(Protocol):
    """An object that accompanies a runner until the model is detached."""

    def close(self) -> None:
        """Wait for work in progress; the model is detached next."""
        ...


C = TypeVar("C", bound=Companion)


class Runner:
    """A :class:`draftwood.protocols.Target`; made by :func:`draftwood.runner.attach.attach`.

    Args:
        model: the attached model.
        info: the target's facts.
        forward_pass: the model with its KV cache.
        chunk: prompt tokens per sequence and prefill forward; None: see :mod:`.prefill`.
        undo: undoes the attachment when it is closed.
        packed: linears whose weights are packed again if they were read or changed.
    """

    #: Search with ``torch.topk`` alone, the plain twin of the two-stage search.
    plain_topk: bool = False

    def __init__(
        self,
        model: Any,
        info: TargetInfo,
        forward_pass: ForwardPass,
        chunk: int | None,
        undo: ExitStack,
        packed: Sequence[PackedLinear | Int8Linear],
    ) -> None:
        self.model = model
        self.chunk = chunk
        self.info = info
        self._undo = undo
        self._detached = False
        self._packed = packed
        self._companions: dict[object, Any] = {}
        self._forward_pass = forward_pass
        self._moves = Staging(info.device)
        self._place, self._attention = place_of(model), attention_of(model)

    @property
    def cache(self) -> KVCache:
        """The model's KV cache."""
        return self._forward_pass.cache

    @property
    def recurrent(self) -> RecurrentStates | None:
        """The states of recurrent layers, if the model has any."""
        return self._forward_pass.recurrent

    @property
    def block(self) -> int:
        """See :class:`draftwood.protocols.PooledTarget`."""
        return self.cache.block

    def allocate(self, tokens: int) -> None:
        """See :class:`draftwood.protocols.PooledTarget`."""
        if isinstance(self.cache, BlockCache):
            self.cache.allocate(tokens)

    def detach(self) -> None:
        """Undo the attachment: the model is as it was before. Further calls do nothing."""
        self._undo.close()
        self._detached = True

    def _refuse_detached(self) -> None:
        if self._detached:
            raise DraftwoodError(
                "the model was detached, which ends its engines: make a new one before decoding"
            )

    def refuse_moved(self) -> None:
        """Refuse a model that was moved, cast or resized.

        Raises:
            DraftwoodError: its device, dtype or vocabulary has changed since it was attached.
        """
        place = place_of(self.model)
        if place != self._place:
            raise DraftwoodError(
                f"the model was {self._place} when Draftwood attached it and is {place} now: call "
                "draftwood.detach(model) once, then generate"
            )

    def _refuse_other_attention(self) -> None:
        attention = attention_of(self.model)
        if attention != self._attention:
            raise DraftwoodError(
                f"the model's attention was set to {attention!r} after Draftwood attached it, and "
                "reads no trees now: call draftwood.detach(model), then set it, then generate"
            )

    def companion(self, make: Callable[["Runner"], C]) -> C:
        """The result of ``make`` for this runner, made once."""
        if make not in self._companions:
            made = self._companions[make] = make(self)
            self._undo.callback(made.close)
        found: C = self._companions[make]
        return found

    def open(self, capacity: int) -> int:
        """Reserve a slot for a request of up to ``capacity`` tokens and return its number.

        Raises:
            DraftwoodError: the model was detached, moved, resized, put into training mode, or given
                another attention, or ``torch.autocast`` would compute in another dtype than the
                model's.
        """
        self._refuse_detached()
        self.refuse_moved()
        self._refuse_other_attention()
        refuse_autocast(self.model, self.info.device)
        if self.model.training:
            raise DraftwoodError("the model was put into training mode; call model.eval() first")
        for linear in self._packed:
            linear.refresh()
        self._forward_pass.refresh()
        self._forward_pass.compiled = is_compiled(self.model)
        if self._forward_pass.static is not None:
            self._forward_pass.static.model_state = model_state(self.model)
        slot = self.cache.open(capacity)
        if self.recurrent is not None:
            try:
                self.recurrent.open(slot)
            except Exception:
                self.cache.release(slot)
                raise
        return slot

    def release(self, slot: int) -> None:
        """Give the slot back."""
        self.cache.release(slot)
        if self.recurrent is not None:
            self.recurrent.release(slot)

    def trim(self) -> None:
        """Give back the memory of the cache and of masks, if no slot is open."""
        self.cache.trim()
        if self.cache.slots:
            return
        masks = self._forward_pass.masks
        if isinstance(masks, TreeMasks):
            masks.trim()
        if self.recurrent is not None:
            self.recurrent.trim()

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        return self.cache.length(slot)

    @property
    def ranks(self) -> int:
        """See :class:`draftwood.protocols.SharedTarget`."""
        ranks = self._forward_pass.ranks
        return 1 if ranks is None else ranks.size

    def of_first(self, numbers: Sequence[float]) -> list[float]:
        """See :class:`draftwood.protocols.SharedTarget`."""
        ranks = self._forward_pass.ranks
        return list(numbers) if ranks is None else ranks.of_first(numbers)

    def keys_values(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`draftwood.protocols.Target.keys_values`: no copy of rows side by side."""
        if self._forward_pass.ranks is not None:
            raise DraftwoodError(
                "each process has the keys and values of its own heads only: this drafter reads "
                "all of the target's, and needs a model that is not divided among processes"
            )
        return self.cache.held(slots, layer)

    def embedding(self) -> torch.nn.Module:
        """The whole input embedding: token ids to ``[.., H]``."""
        module: torch.nn.Module = self.model.get_input_embeddings()
        ranks = self._forward_pass.ranks
        return module if ranks is None else ranks.whole(module)

    def lm_head(self) -> torch.nn.Module | None:
        """The whole output layer: last hidden states to logits; None if the model has none."""
        module: torch.nn.Module | None = self.model.get_output_embeddings()
        ranks = self._forward_pass.ranks
        return module if ranks is None or module is None else ranks.whole(module)

    def roll_back(self, slot: int, length: int) -> None:
        """Keep the slot's first ``length`` tokens only.

        Raises:
            DraftwoodError: fewer than ``length`` tokens are cached.
        """
        if not 0 <= length <= self.cache.length(slot):
            raise DraftwoodError(
                f"slot {slot} holds {self.cache.length(slot)} tokens and cannot be cut to {length}"
            )
        if self.recurrent is not None:
            self.recurrent.roll_back(slot, length, self.cache.length(slot))
        self.cache.resize(slot, length)

    @contextmanager
    def self_testing(self, shift: int, chunk: int | None) -> Iterator[None]:
        """A context in which texts begin at position ``shift``; for the self-test only.

        Args:
            shift: position of a text's first token.
            chunk: prompt tokens per sequence and prefill forward; None: as attached.
        """
        attached = self.chunk
        self._forward_pass.shift, self.chunk = shift, chunk or attached
        try:
            yield
        finally:
            self._forward_pass.shift, self.chunk = 0, attached

    @torch.inference_mode()
    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
        min_extents: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """Append every prompt to its slot's cached tokens and return the prompts' outputs.

        See :meth:`draftwood.protocols.Target.prefill`, and
        :class:`draftwood.protocols.DraftModel` for ``hidden``.

        Args:
            slots: one for each prompt.
            prompts: token ids.
            needs: what drafters want computed.
            hidden: ``[n, H]`` for each prompt, or nothing.
            min_extents: lower bounds of the tokens' extents (:mod:`draftwood.runner.rotary`); by
                default the prompt's length in an empty slot, else 0.

        Raises:
            DraftwoodError: a prompt is empty, a slot is not open, or it is named twice, or the
                model was detached.
        """
        self._refuse_detached()
        starts = [self.cache.length(slot) for slot in slots]
        given = [
            PendingPrompt(slot, np.asarray(tokens, dtype=np.int64), start)
            for slot, tokens, start in zip(slots, prompts, starts, strict=True)
        ]
        for i, prompt in enumerate(given):
            prompt.hidden = hidden[i] if hidden else None
            prompt.min_extent = 0 if prompt.start else len(prompt.tokens)
            if min_extents:
                prompt.min_extent = min_extents[i]
        prefill = ChunkedPrefill(
            self._forward_pass, needs, self.chunk, self.info.vocab_size, self.plain_topk
        )
        return prefill.run(given)

    def prefill_piece(
        self,
        slots: Sequence[int],
        pieces: Sequence[Sequence[int]],
        needs: Needs,
        prompts: Sequence[int],
    ) -> list[TargetOutput]:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        found = self.prefill(slots, pieces, needs, min_extents=prompts)
        if self.recurrent is not None:
            for slot, tokens in zip(slots, prompts, strict=True):
                if self.cache.length(slot) == tokens - TAIL:
                    self.recurrent.cached(slot, tokens - TAIL, ended=True)
        return found

    @property
    def most_within(self) -> int:
        """See :class:`draftwood.protocols.ResumableTarget`: as a usual chunk."""
        return self.chunk or CHUNK

    def readable(self, slot: int, tokens: int) -> bool:
        """See :class:`draftwood.protocols.ResumableTarget`; on a CPU only, and without masks.

        Rotary factors that depend on a prompt's length, and states of recurrent layers, are of
        forwards over prompts alone.
        """
        masks = self._forward_pass.masks
        if self._forward_pass.needs_extents or self.recurrent is not None:
            return False
        return isinstance(masks, TreeMasks) and self.length(slot) + tokens <= masks.reach

    def submit_with_pieces(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        pieces: Mapping[int, Sequence[int]],
    ) -> Submitted:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        chains = [tree_of(ids, range(-1, len(ids) - 1), "prompt") for ids in pieces.values()]
        unread = [0 if needs.prompt_rows else chain.drafted for chain in chains]
        found = self.submit(
            [*slots, *pieces], [*trees, *chains], needs, unread=[0] * len(trees) + unread
        )
        assert isinstance(found, SubmittedForward), "no text is computed again"
        return found.with_all_features()

    def savable(self, slot: int, length: int) -> int:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        if self._forward_pass.needs_extents:
            return 0
        if self.recurrent is None:
            return length
        return self.recurrent.savable(slot, length, self.cache.length(slot))

    def saved(self, slot: int, length: int) -> SavedTokens:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        found = self.cache.saved(slot, length)
        if self.recurrent is None:
            return found
        return replace(found, states=self.recurrent.saved(slot, length, self.cache.length(slot)))

    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        self.cache.restore(slot, saved, length)
        if self.recurrent is not None and saved.states is not None:
            self.recurrent.restore(slot, length, saved.states)

    def lend(self, lender: int, slot: int, length: int) -> None:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        if self.recurrent is None:
            self.cache.lend(lender, slot, length)
            return
        # First, as this takes memory.
        states = self.recurrent.saved(lender, length, self.cache.length(lender))
        self.cache.lend(lender, slot, length)
        self.recurrent.restore(slot, length, states)

    @property
    def remembered_bytes(self) -> int:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        kept = self.recurrent is not None and not self._forward_pass.needs_extents
        return MOST_SNAPSHOTS * self.info.slot_bytes if kept else 0

    @property
    def weights_version(self) -> Hashable:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        return model_state(self.model), changes_in_place(self.model)

    def remember(self, slot: int) -> None:
        """See :class:`draftwood.protocols.ResumableTarget`."""
        if self.recurrent is not None:
            self.recurrent.remember(slot)

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
        min_extents: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """Score every node of every tree in one forward pass, see :meth:`submit`."""
        return self.submit(slots, trees, needs, None, done, hidden, unread, min_extents).rows()

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
        """Begin to score every node of every tree in one forward pass. The cache is not advanced.

        ``logits`` of a tree of n nodes are ``[n, V]`` in the model's dtype. For ``done``,
        ``hidden`` and ``unread`` see :class:`draftwood.protocols.DraftModel`, for ``min_extents``
        :meth:`prefill`. ``numbers``, int64, are uploaded with the forward's own.

        Raises:
            DraftwoodError: a slot is not open, or is named twice, or the model was detached.
        """
        self._refuse_detached()
        cache, b = self.cache, len(trees)
        rows = [cache.row(slot) for slot in slots]
        done, unread = done or [0] * b, unread or [0] * b
        order = [0]
        if b > 1:
            order = sorted(range(b), key=rows.__getitem__)
            slots, trees = [slots[i] for i in order], [trees[i] for i in order]
            rows, done = [rows[i] for i in order], [done[i] for i in order]
            unread = [unread[i] for i in order]
            hidden = [hidden[i] for i in order] if hidden else ()
            min_extents = [min_extents[i] for i in order] if min_extents else ()
            if len(set(rows)) < b:
                raise DraftwoodError("a slot is named twice in one forward; give it one tree")
        lengths = [cache.length(slot) for slot in slots]
        starts = list(map(add, lengths, done))
        counts = [len(tree) - first for tree, first in zip(trees, done, strict=True)]
        ends = list(accumulate(counts))
        ids, positions = self._forward_pass.lanes(ends[-1])
        for tree, first, length, n, end in zip(trees, done, lengths, counts, ends, strict=True):
            ids[end - n : end] = tree.tokens[first:]
            np.add(tree.depths[first:], length, out=positions[end - n : end])
        visibility, mask = self._forward_pass.masks.build(lengths, trees, done)
        if self.recurrent is not None:
            self.recurrent.begin_trees(slots, [tree.parents.tolist() for tree in trees], done)
        with torch.inference_mode():
            output = self._forward_pass.run(
                rows,
                starts,
                counts,
                visibility,
                mask,
                needs.taps,
                keep=_read(ends, counts, unread) if any(unread) else (),
                hidden=torch.cat(list(hidden))[None] if hidden else None,
                min_extents=min_extents,
                further=numbers,
                top_k=needs.top_k if needs.host else None,
            )
        return SubmittedForward(
            output,
            counts,
            unread,
            order,
            self._forward_pass.further,
            needs,
            self.plain_topk,
        )

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the root and the nodes of each path (root excluded) of the last forward."""
        sources, targets = self.cache.advance(slots, paths)
        if self.recurrent is not None:
            self.recurrent.commit(slots, paths)
        if sources:
            n = len(sources)
            self._moves.begin(2 * n)[:] = sources + targets
            with torch.inference_mode():
                self.cache.move(*self._moves.send((n, n)))


def _read(ends: Sequence[int], counts: Sequence[int], unread: Sequence[int]) -> list[int]:
    """Places of the nodes that are read, where the trees lie behind one another."""
    parts = zip(ends, counts, unread, strict=True)
    return [place for end, n, first in parts for place in range(end - n + first, end)]
