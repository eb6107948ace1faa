"""A smaller causal language model of the same vocabulary: its likeliest tokens after any path.

A whole frontier, all nodes of a level and all requests of the batch, is one forward pass. The
model keeps a cache of its own: an accepted path stays in it, and tokens that were committed without
having been drafted from are caught up in the forward of the next level 0. Nothing is computed
twice. It refuses to know why nodes are asked about and which of its tokens become nodes.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023), over trees as in SpecInfer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from draftwood.cells import Cells
from draftwood.errors import DraftwoodError
from draftwood.hosts import DraftModel, Host
from draftwood.protocols import Candidates, Continuation, Expand, Needs, Outcome, Prefill, Rows
from draftwood.tree import Draw, TokenTree, TreeBuilder


@dataclass(frozen=True)
class Model:
    """Settings of a draft model."""

    model: str | PreTrainedModel = field(
        default="embedded-draft",
        metadata={"help": "'embedded-draft', a directory or a hub id of a smaller model"},
    )

    def build(self, host: Host) -> "ModelDrafter":
        """Load the model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or has another vocabulary.
        """
        return ModelDrafter(host.model(self.model), host.info.vocab_size)


@dataclass
class _Sequence:
    """One request's state in the draft model.

    Attributes:
        slot: the draft model's.
        prompt: tokens yet to be cached, before anything else.
        pending: committed tokens that are not cached, the next tree's root last.
        kept: cells of the last step that stay, once the next forward comes; None: nothing is due.
        tree: the policy's tree that ``cells`` belong to.
        cells: what was forwarded in this step.
        rows: of each forward in this step, with its first cell.
    """

    slot: int
    prompt: list[int]
    pending: list[int]
    kept: tuple[int, ...] | None = None
    tree: TreeBuilder | None = None
    cells: Cells | None = None
    rows: list[tuple[int, Rows]] = field(default_factory=list)


class ModelDrafter:
    """Ranks tokens by the draft model's own distribution q, at temperature one.

    Prompts are cached when a request first drafts, all waiting ones in one call. Where a path
    leaves the draft model's context, it offers nothing.

    Args:
        model: runs the trees.
        vocab_size: of the target; the draft model's ids beyond are never offered, and ids that
            the draft model lacks are shown to it as its last one.
    """

    def __init__(self, model: DraftModel, vocab_size: int) -> None:
        self._model = model
        self._vocab = min(vocab_size, model.info.vocab_size)
        self._sequences: dict[int, _Sequence] = {}
        self._forwards = 0

    @property
    def needs(self) -> Needs:
        """Nothing: the draft model reads tokens only."""
        return Needs()

    @property
    def forwards(self) -> int:
        """Forward passes over drafted trees, prompts not counted."""
        return self._forwards

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts; its prompt is cached when it first drafts."""
        self.release(slot)
        prompt = prefill.prompt.tolist()
        where = self._model.open(len(prompt))
        self._sequences[slot] = _Sequence(where, prompt, [prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Note what of the drafted tree stays, and what is yet to be cached."""
        sequence = self._sequences[slot]
        if sequence.cells is None:
            sequence.pending += outcome.committed
        else:
            sequence.kept, sequence.pending = sequence.cells.settle(outcome.committed)
            sequence.tree = sequence.cells = None
            sequence.rows.clear()

    def release(self, slot: int) -> None:
        """The request has ended."""
        sequence = self._sequences.pop(slot, None)
        if sequence is not None:
            self._model.release(sequence.slot)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Nothing: this drafter copies no text."""
        return [() for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` likeliest tokens after each node, in one forward for all that are new.

        Raises:
            DraftwoodError: a query asks for sampled children.
        """
        if any(query.draw is not Draw.ONE_HOT for query in queries):
            raise DraftwoodError("a draft model ranks tokens; ask it for one-hot children")
        sequences = [self._sequences[slot] for slot in slots]
        fits = [self._fits(s, q) for s, q in zip(sequences, queries, strict=True)]
        able = [(s, q) for s, q, fit in zip(sequences, queries, fits, strict=True) if fit]
        self._catch_up([sequence for sequence, _ in able])
        width = max((q.k + max(map(len, q.exclude), default=0) for _, q in able), default=0)
        self._forward(able, Needs(top_k=width))
        return [
            self._answer(s, q) if fit else _nothing(q)
            for s, q, fit in zip(sequences, queries, fits, strict=True)
        ]

    def _fits(self, sequence: _Sequence, query: Expand) -> bool:
        """Whether the deepest node has a position in the draft model's context."""
        kept = 0 if sequence.kept is None else len(sequence.kept) + 1
        cached = self._model.length(sequence.slot) + len(sequence.prompt) + kept
        deepest = max(query.tree.depths[node] for node in query.nodes)
        return cached + len(sequence.pending) + deepest <= self._model.info.context_limit

    def _catch_up(self, sequences: Sequence[_Sequence]) -> None:
        """Bring the caches to the point where a new tree may begin."""
        kept = [(s.slot, s.kept) for s in sequences if s.kept is not None]
        if kept:
            self._model.commit([slot for slot, _ in kept], [path for _, path in kept])
        new = [s for s in sequences if s.prompt]
        if new:
            prompts = [np.minimum(s.prompt, self._last).tolist() for s in new]
            self._model.prefill([s.slot for s in new], prompts, Needs())
        for sequence in sequences:
            sequence.kept = None
            sequence.prompt = []

    @property
    def _last(self) -> int:
        return self._model.info.vocab_size - 1

    def _forward(self, asked: Sequence[tuple[_Sequence, Expand]], needs: Needs) -> None:
        """Run what is not cached of the nodes asked about."""
        members: list[_Sequence] = []
        trees: list[TokenTree] = []
        done: list[int] = []
        for sequence, query in asked:
            cells, before = sequence.cells, 0
            if cells is None or sequence.tree is not query.tree:
                cells = sequence.cells = Cells(sequence.pending)
                sequence.tree = query.tree
                sequence.rows.clear()
            else:
                before = len(cells)
            cells.lay(query.tree, query.nodes)
            if len(cells) > before:
                members.append(sequence)
                trees.append(self._known(cells.tree.build()))
                done.append(before)
        if not members:
            return
        rows = self._model.forward([s.slot for s in members], trees, needs, done)
        self._forwards += 1
        for sequence, before, found in zip(members, done, rows, strict=True):
            sequence.rows.append((before, found))

    def _known(self, tree: TokenTree) -> TokenTree:
        np.minimum(tree.tokens, self._last, out=tree.tokens)
        return tree

    def _answer(self, sequence: _Sequence, query: Expand) -> Candidates:
        cells = sequence.cells
        assert cells is not None
        tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
        logq = np.full((len(query.nodes), query.k), -np.inf, dtype=np.float32)
        excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
        for i, (node, exclude) in enumerate(zip(query.nodes, excludes, strict=True)):
            best, probs = _ranked(sequence, cells.cell(node), query.k + len(exclude))
            if exclude or best.max(initial=0) >= self._vocab:
                fine = [j for j, t in enumerate(best.tolist()) if self._offers(t, exclude)]
                best, probs = best[fine], probs[fine]
            count = min(query.k, len(best))
            tokens[i, :count] = best[:count]
            with np.errstate(divide="ignore"):
                np.log(probs[:count], out=logq[i, :count])
        return Candidates(tokens, logq)

    def _offers(self, token: int, exclude: frozenset[int]) -> bool:
        return token < self._vocab and token not in exclude


def _ranked(
    sequence: _Sequence, cell: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` likeliest tokens after a cell, and their probabilities."""
    before, rows = next(found for found in reversed(sequence.rows) if found[0] <= cell)
    row = cell - before
    if k <= rows.top_tokens.shape[1]:
        return rows.top_tokens[row, :k], rows.top_probs[row, :k]
    # Asked about before, for fewer: rank this row again.
    shares = torch.softmax(rows.logits[row].float(), dim=-1)
    top = shares.topk(min(k, shares.shape[0]))
    return top.indices.cpu().numpy(), top.values.cpu().numpy()


def _nothing(query: Expand) -> Candidates:
    shape = (len(query.nodes), query.k)
    return Candidates(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))


PART = Model
