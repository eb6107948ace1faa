"""Runs a draft model over growing trees, level by level, for many sequences at once.

What the drafters with a model of their own share. A whole frontier, all nodes of a level and all
sequences of the batch, is one forward pass. An accepted path stays in the model's cache, and tokens
that were committed without having been drafted from are caught up in the forward of the next
level 0, so nothing is computed twice. Prompts are cached when a sequence first drafts.

A model may be given a vector beside each token (:class:`draftwood.hosts.DraftModel`). Beyond the
committed tokens this is what the model itself yielded one node above, so such a model forwards one
generation of nodes at a time, and none of its own guesses stay: once the target's features of an
accepted token are known, the token is forwarded again with these (EAGLE, section 4.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.cells import Cells
from draftwood.errors import DraftwoodError
from draftwood.hosts import DraftModel
from draftwood.protocols import Candidates, Expand, Needs, Rows
from draftwood.tree import Draw, TokenTree, TreeBuilder


@dataclass
class _Sequence:
    """One request's state in the draft model.

    Attributes:
        slot: the draft model's.
        prompt: tokens yet to be cached, before anything else.
        prompt_hidden: their vectors ``[n, H]``, if the model takes any.
        pending: committed tokens that are not cached, the next tree's root last.
        pending_hidden: their vectors.
        kept: cells of the last step that stay, once the next forward comes; None: nothing is due.
        tree: the policy's tree that ``cells`` belong to.
        cells: what was forwarded in this step.
        rows: of each forward in this step, with its first cell.
    """

    slot: int
    prompt: list[int]
    prompt_hidden: torch.Tensor | None
    pending: list[int]
    pending_hidden: torch.Tensor | None
    kept: tuple[int, ...] | None = None
    tree: TreeBuilder | None = None
    cells: Cells | None = None
    rows: list[tuple[int, Rows]] = field(default_factory=list)

    def row(self, cell: int) -> tuple[Rows, int]:
        """Where a cell's results are."""
        before, rows = next(found for found in reversed(self.rows) if found[0] <= cell)
        return rows, cell - before


class Levels:
    """See the module.

    Args:
        model: runs the trees.
        to_target: int64 ``[Vd]``: the target's id of each of the model's output ids, or -1 for
            those that the target lacks.
        known: how many of the target's ids the model can read; others are shown to it as the last.
        limit: longest sequence in tokens that it can be asked about.
    """

    #: Answer node by node, the plain twin of answering a level at once.
    one_by_one: bool = False

    def __init__(
        self, model: DraftModel, to_target: NDArray[np.int64], known: int, limit: int
    ) -> None:
        self._model = model
        self._limit = limit
        self._to_target = to_target
        self._known = known
        self._sequences: dict[int, _Sequence] = {}
        self.forwards = 0

    def begin(
        self,
        slot: int,
        prompt: Sequence[int],
        pending: Sequence[int],
        prompt_hidden: torch.Tensor | None = None,
        pending_hidden: torch.Tensor | None = None,
    ) -> None:
        """A sequence starts.

        Args:
            slot: the caller's name for it.
            prompt: tokens to cache first.
            pending: tokens to forward with the first tree, its root last.
            prompt_hidden: ``[n, H]``, for a model that takes vectors.
            pending_hidden: likewise.
        """
        self.release(slot)
        where = self._model.open(len(prompt) + len(pending))
        self._sequences[slot] = _Sequence(
            where, list(prompt), prompt_hidden, list(pending), pending_hidden
        )

    def settle(
        self, slot: int, committed: Sequence[int], hidden: torch.Tensor | None = None
    ) -> None:
        """A step has been committed.

        Args:
            slot: the sequence.
            committed: its new tokens, the next root last.
            hidden: their vectors ``[n, H]``, for a model that takes any.
        """
        sequence = self._sequences[slot]
        cells = sequence.cells
        if cells is None:
            sequence.pending += committed
            if hidden is not None and sequence.pending_hidden is not None:
                sequence.pending_hidden = torch.cat([sequence.pending_hidden, hidden])
            return
        if hidden is None:
            sequence.kept, sequence.pending = cells.settle(committed)
        else:
            sequence.kept = tuple(range(1, cells.root + 1))
            sequence.pending, sequence.pending_hidden = list(committed), hidden
        sequence.tree = sequence.cells = None
        sequence.rows.clear()

    def release(self, slot: int) -> None:
        """The sequence has ended, if there was one."""
        sequence = self._sequences.pop(slot, None)
        if sequence is not None:
            self._model.release(sequence.slot)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` likeliest tokens after each node, forwarding those that are new.

        Where a path leaves the draft model's context, nothing is offered.

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
        while self._forward(able, Needs(top_k=width)):
            self.forwards += 1
        return [
            self._answer(s, q) if fit else _nothing(q)
            for s, q, fit in zip(sequences, queries, fits, strict=True)
        ]

    def _fits(self, sequence: _Sequence, query: Expand) -> bool:
        """Whether the deepest node has a position in the draft model's context."""
        kept = 0 if sequence.kept is None else len(sequence.kept) + 1
        cached = self._model.length(sequence.slot) + len(sequence.prompt) + kept
        deepest = max(query.tree.depths[node] for node in query.nodes)
        return cached + len(sequence.pending) + deepest <= self._limit

    def _catch_up(self, sequences: Sequence[_Sequence]) -> None:
        """Bring the caches to the point where a new tree may begin."""
        kept = [(s.slot, s.kept) for s in sequences if s.kept is not None]
        if kept:
            self._model.commit([slot for slot, _ in kept], [path for _, path in kept])
        new = [s for s in sequences if s.prompt]
        if new:
            prompts = [np.minimum(s.prompt, self._known - 1).tolist() for s in new]
            hidden = [s.prompt_hidden for s in new if s.prompt_hidden is not None]
            self._model.prefill([s.slot for s in new], prompts, Needs(), hidden)
        for sequence in sequences:
            sequence.kept = sequence.prompt_hidden = None
            sequence.prompt = []

    def _forward(self, asked: Sequence[tuple[_Sequence, Expand]], needs: Needs) -> bool:
        """Run what is not cached of the nodes asked about, or a generation of it; False if none."""
        members: list[_Sequence] = []
        trees: list[TokenTree] = []
        done: list[int] = []
        hidden: list[torch.Tensor] = []
        for sequence, query in asked:
            cells, before = sequence.cells, 0
            if cells is None or sequence.tree is not query.tree:
                cells = sequence.cells = Cells(sequence.pending)
                sequence.tree = query.tree
                sequence.rows.clear()
            else:
                before = len(cells)
            if sequence.pending_hidden is None:
                cells.lay(query.tree, query.nodes)
            elif before:
                cells.lay_generation(query.tree, query.nodes)
            if len(cells) > before:
                members.append(sequence)
                trees.append(self._readable(cells.tree.build()))
                done.append(before)
                if sequence.pending_hidden is not None:
                    hidden.append(_above(sequence, cells, before))
        if not members:
            return False
        rows = self._model.forward([s.slot for s in members], trees, needs, done, hidden)
        for sequence, before, found in zip(members, done, rows, strict=True):
            sequence.rows.append((before, found))
        return True

    def _readable(self, tree: TokenTree) -> TokenTree:
        np.minimum(tree.tokens, self._known - 1, out=tree.tokens)
        return tree

    def _answer(self, sequence: _Sequence, query: Expand) -> Candidates:
        cells, k = sequence.cells, query.k
        assert cells is not None
        places = [sequence.row(cells.cell(node)) for node in query.nodes]
        rows = places[0][0]
        # A level as a policy asks for it: all rows of one forward, ranked far enough.
        plain = self.one_by_one or any(query.exclude) or k > rows.top_tokens.shape[1]
        if plain or any(found is not rows for found, _ in places):
            return self._answer_one_by_one(query, places)
        where = [row for _, row in places]
        tokens = self._to_target[rows.top_tokens[where, :k]]
        if tokens.min(initial=0) < 0:
            return self._answer_one_by_one(query, places)
        with np.errstate(divide="ignore"):
            return Candidates(tokens, np.log(rows.top_probs[where, :k]))

    def _answer_one_by_one(self, query: Expand, places: Sequence[tuple[Rows, int]]) -> Candidates:
        tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
        logq = np.full((len(query.nodes), query.k), -np.inf, dtype=np.float32)
        excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
        for i, ((rows, row), exclude) in enumerate(zip(places, excludes, strict=True)):
            best, probs = _ranked(rows, row, query.k + len(exclude))
            best = self._to_target[best]
            if exclude or best.min(initial=0) < 0:
                fine = [j for j, t in enumerate(best.tolist()) if t >= 0 and t not in exclude]
                best, probs = best[fine], probs[fine]
            count = min(query.k, len(best))
            tokens[i, :count] = best[:count]
            with np.errstate(divide="ignore"):
                np.log(probs[:count], out=logq[i, :count])
        return Candidates(tokens, logq)


def _above(sequence: _Sequence, cells: Cells, before: int) -> torch.Tensor:
    """Vectors ``[m, H]`` of the cells from ``before`` on."""
    if not before:
        assert sequence.pending_hidden is not None
        return sequence.pending_hidden
    found = []
    for parent in cells.tree.parents[before:]:
        rows, row = sequence.row(parent)
        assert rows.features is not None
        found.append(rows.features[row])
    return torch.stack(found)


def _ranked(rows: Rows, row: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ``k`` likeliest output ids of a row, and their probabilities."""
    if k <= rows.top_tokens.shape[1]:
        return rows.top_tokens[row, :k], rows.top_probs[row, :k]
    # Asked about before, for fewer: rank this row again.
    shares = torch.softmax(rows.logits[row].float(), dim=-1)
    top = shares.topk(min(k, shares.shape[0]))
    return top.indices.cpu().numpy(), top.values.cpu().numpy()


def _nothing(query: Expand) -> Candidates:
    shape = (len(query.nodes), query.k)
    return Candidates(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))
