"""Runs a draft model over growing trees, level by level, for many sequences at once.

What the drafters with a model of their own share. A whole frontier, all nodes of a level and all
sequences of the batch, is one forward pass. An accepted path stays in the model's cache, so nothing
is computed twice. Committed tokens that the model has not read are its *backlog*: the prompt until
a sequence first drafts, and whatever is generated while it does not. A few generated tokens are
part of the next level 0. Prompts and longer backlogs are cached first, in chunks and with logits of
their last rows only: a row of logits is as long as the vocabulary.

A model may be given a vector beside each token (:class:`draftwood.protocols.DraftModel`).
Beyond the committed tokens this is what the model itself yielded one node above, so such a model
forwards one generation of nodes at a time, and none of its own guesses stay: once the target's
features of an accepted token are known, the token is forwarded again with these (EAGLE, section
4.1).

Refuses to know how a node's logits become an answer (:mod:`draftwood.drafters._rollout.topk`,
:mod:`draftwood.drafters._rollout`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from draftwood.drafters._rollout import Draws, couple
from draftwood.drafters._rollout.slots import RolloutSlots
from draftwood.drafters._rollout.topk import Place, rank
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, DraftModel, Expand, Needs, TargetOutput
from draftwood.tree import SAMPLED, Draw, TokenTree, TreeBuilder

_ALONG: Final = 16
"""Most tokens of a backlog that are part of the next level 0."""


@dataclass
class _Sequence:
    """One request's state in the draft model.

    Attributes:
        slot: the draft model's.
        pending: committed tokens that are not cached, the next tree's root last.
        hidden: their vectors in order, as several ``[n, H]``; none if the model takes none.
        draws: what was sampled in this step.
        kept: cells of the last step that stay, once the next forward comes; None: nothing is due.
        tree: the policy's tree that ``cells`` belong to.
        cells: what was forwarded in this step.
        rows: of each forward in this step, with its first cell.
    """

    slot: int
    pending: list[int]
    hidden: list[torch.Tensor]
    draws: Draws
    kept: tuple[int, ...] | None = None
    tree: TreeBuilder | None = None
    cells: RolloutSlots | None = None
    rows: list[tuple[int, TargetOutput]] = field(default_factory=list)

    def row(self, cell: int) -> Place:
        """Where a cell's results are."""
        before, rows = next(found for found in reversed(self.rows) if found[0] <= cell)
        return rows, cell - before


class DraftRollout:
    """See the module.

    Args:
        model: runs the trees.
        outputs: what it yields.
        known: how many of the target's ids the model can read; others are shown to it as the last.
        limit: longest sequence in tokens that it can be asked about.
    """

    #: Rank node by node, the plain twin of ranking a level at once.
    one_by_one: bool = False

    def __init__(self, model: DraftModel, outputs: VocabularyMap, known: int, limit: int) -> None:
        self._model = model
        self._limit = limit
        self._outputs = outputs
        self._known = known
        self._sequences: dict[int, _Sequence] = {}
        self.forwards = 0

    def begin(
        self, slot: int, committed: Sequence[int], hidden: torch.Tensor | None = None
    ) -> None:
        """A sequence starts.

        Args:
            slot: the caller's name for it.
            committed: its tokens, the first tree's root last.
            hidden: their vectors ``[n, H]``, for a model that takes any.
        """
        self.release(slot)
        where = self._model.open(len(committed))
        draws, vectors = Draws(self._outputs), [] if hidden is None else [hidden]
        self._sequences[slot] = _Sequence(where, list(committed), vectors, draws)

    def backlog(self, slot: int) -> int:
        """Committed tokens that the model has not read, the next tree's root aside."""
        return len(self._sequences[slot].pending) - 1

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
        sequence.draws.clear()
        cells = sequence.cells
        if cells is None:
            sequence.pending += committed
            if hidden is not None:
                sequence.hidden.append(hidden)
            return
        if hidden is None:
            sequence.kept, sequence.pending = cells.settle(committed)
        else:
            sequence.kept = tuple(range(1, cells.root + 1))
            sequence.pending, sequence.hidden = list(committed), [hidden]
        sequence.tree = sequence.cells = None
        sequence.rows.clear()

    def release(self, slot: int) -> None:
        """The sequence has ended, if there was one."""
        sequence = self._sequences.pop(slot, None)
        if sequence is not None:
            self._model.release(sequence.slot)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` likeliest or drawn tokens after each node, forwarding those that are new.

        Where a path leaves the draft model's context, nothing is offered.

        Raises:
            DraftwoodError: a query asks for samples without noise, or its temperature is not above
                0.
        """
        for query in queries:
            _check(query)
        sequences = [self._sequences[slot] for slot in slots]
        fits = [self._fits(s, q) for s, q in zip(sequences, queries, strict=True)]
        able = [(s, q) for s, q, fit in zip(sequences, queries, fits, strict=True) if fit]
        self._catch_up([sequence for sequence, _ in able])
        ranked = [q for _, q in able if q.draw is Draw.ONE_HOT]
        width = max((q.k + max(map(len, q.exclude), default=0) for q in ranked), default=0)
        while self._forward(able, Needs(top_k=width)):
            self.forwards += 1
        return [
            self._answer(s, q) if fit else _nothing(q)
            for s, q, fit in zip(sequences, queries, fits, strict=True)
        ]

    def proposals(self, slot: int, handles: Sequence[int]) -> torch.Tensor:
        """See :meth:`draftwood.drafters._rollout.Draws.proposals`; until the step is settled."""
        return self._sequences[slot].draws.proposals(handles)

    def _fits(self, sequence: _Sequence, query: Expand) -> bool:
        """Whether the deepest node has a position in the draft model's context."""
        kept = 0 if sequence.kept is None else len(sequence.kept) + 1
        cached = self._model.length(sequence.slot) + kept
        deepest = max(query.tree.depths[node] for node in query.nodes)
        return cached + len(sequence.pending) + deepest <= self._limit

    def _catch_up(self, sequences: Sequence[_Sequence]) -> None:
        """Bring the caches to the point where a new tree may begin."""
        kept = [(s.slot, s.kept) for s in sequences if s.kept is not None]
        if kept:
            self._model.commit([slot for slot, _ in kept], [path for _, path in kept])
        for sequence in sequences:
            sequence.kept = None
        behind = [s for s in sequences if s.cells is None and len(s.pending) > self._along(s) + 1]
        if behind:
            backlogs = [np.minimum(s.pending[:-1], self._known - 1).tolist() for s in behind]
            vectors = [torch.cat(s.hidden) for s in behind if s.hidden]
            given = [each[:-1] for each in vectors]
            self._model.prefill([s.slot for s in behind], backlogs, Needs(), given)
            for sequence, each in zip(behind, vectors, strict=False):
                sequence.hidden = [each[-1:].clone()]
            for sequence in behind:
                sequence.pending = sequence.pending[-1:]

    def _along(self, sequence: _Sequence) -> int:
        """Tokens of a sequence's backlog that may be part of a level; of a prompt none."""
        return _ALONG if self._model.length(sequence.slot) else 0

    def _forward(self, asked: Sequence[tuple[_Sequence, Expand]], needs: Needs) -> bool:
        """Run what is not cached of the nodes asked about, or a generation of it; False if none."""
        members: list[_Sequence] = []
        trees: list[TokenTree] = []
        done: list[int] = []
        hidden: list[torch.Tensor] = []
        for sequence, query in asked:
            cells, before = sequence.cells, 0
            if cells is None or sequence.tree is not query.tree:
                cells = sequence.cells = RolloutSlots(sequence.pending)
                sequence.tree = query.tree
                sequence.rows.clear()
            else:
                before = len(cells)
            if not sequence.hidden:
                cells.lay(query.tree, query.nodes)
            elif before:
                cells.lay_generation(query.tree, query.nodes)
            if len(cells) > before:
                members.append(sequence)
                trees.append(self._readable(cells.tree.build()))
                done.append(before)
                if sequence.hidden:
                    hidden.append(_above(sequence, cells, before))
        if not members:
            return False
        void = len(self._outputs.void) > 0
        wanted = Needs() if void else needs
        rows = self._model.forward([s.slot for s in members], trees, wanted, done, hidden)
        if void:
            rows = [self._outputs.meaningful(each, needs.top_k) for each in rows]
        for sequence, before, found in zip(members, done, rows, strict=True):
            sequence.rows.append((before, found))
        return True

    def _readable(self, tree: TokenTree) -> TokenTree:
        np.minimum(tree.tokens, self._known - 1, out=tree.tokens)
        return tree

    def _answer(self, sequence: _Sequence, query: Expand) -> Candidates:
        cells = sequence.cells
        assert cells is not None
        places = [sequence.row(cells.cell(node)) for node in query.nodes]
        if query.draw is Draw.ONE_HOT:
            return rank(query, places, self._outputs, self.one_by_one)
        if query.draw is Draw.COUPLED:
            depths = [query.tree.depths[node] for node in query.nodes]
            logits = torch.stack([rows.logits[row] for rows, row in places])
            return couple(query, depths, logits, self._outputs)
        return sequence.draws.draw(query, torch.stack([rows.logits[row] for rows, row in places]))


def _above(sequence: _Sequence, cells: RolloutSlots, before: int) -> torch.Tensor:
    """Vectors ``[m, H]`` of the cells from ``before`` on."""
    if not before:
        return torch.cat(sequence.hidden)
    found = []
    for parent in cells.tree.parents[before:]:
        rows, row = sequence.row(parent)
        assert rows.features is not None
        found.append(rows.features[row])
    return torch.stack(found)


def _check(query: Expand) -> None:
    if not 0 < query.temperature < math.inf:
        raise DraftwoodError(
            f"a draft's temperature is {query.temperature}; give one above 0, and for greedy "
            "decoding ask for one-hot children"
        )
    if query.draw is not Draw.ONE_HOT and query.noise is None:
        raise DraftwoodError(
            f"a query for {query.draw.name} children has no noise; give it that of the growth"
        )


def _nothing(query: Expand) -> Candidates:
    shape = (len(query.nodes), query.k)
    tokens, logq = np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
    handles = np.full(shape[0], -1, dtype=np.int64) if query.draw in SAMPLED else None
    return Candidates(tokens, logq, handles)
