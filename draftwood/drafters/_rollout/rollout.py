"""Runs a draft model over growing trees, level by level, for many sequences at once.

All drafters with a model share it. A frontier (all nodes of a level, all sequences of the batch) is
one forward pass. An accepted path stays in the model's KV cache, so nothing is computed twice.
Committed tokens that the model has not read are its *backlog*: the prompt until a sequence first
drafts, and tokens that are generated while it does not draft. A few generated tokens are forwarded
together with the next level. Prompts and longer backlogs are prefilled, with logits of their last
rows only. Other sequences wait meanwhile: if there are any, a long backlog may be read in pieces,
one a step, and the sequence drafts once all is read. The sequences' tokens are the model's own
(:mod:`.reading`).

A model may take a vector beside each token (:class:`draftwood.protocols.DraftModel`). For committed
tokens it is computed from the target's features, which wait until the model is asked: one product
then does for all sequences, and none is needed for those that end before they are asked. For
drafted nodes it is the model's own output at the parent. So such a model forwards one generation of
nodes at a time. Its entries for drafted nodes are dropped: accepted tokens are forwarded again with
the target's features (EAGLE, section 4.1).

A model may have been trained to read masks in place of tokens that are not known yet
(:meth:`DraftRollout.expand_masks`). Then one forward says several tokens ahead. The masks' entries
are dropped.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from draftwood.drafters._rollout.answers import answers, check, most_ranked
from draftwood.drafters._rollout.draws import Draws
from draftwood.drafters._rollout.entries import RolloutEntries
from draftwood.drafters._rollout.reading import Reader
from draftwood.drafters._rollout.topk import Place
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters._rollout.waiting import WaitingFeatures
from draftwood.protocols import (
    MOST_READ,
    Candidates,
    DraftModel,
    Expand,
    Mask,
    Needs,
    TargetOutput,
)
from draftwood.tree import TreeBuilder

_MAX_ALONG: Final = 16
"""Most tokens of a backlog that are forwarded together with the next level."""

_MOST_WAITING: Final = 128 << 20
"""Most bytes of features that wait, of all sequences: they take more memory than the vectors."""


@dataclass
class _Sequence:
    """The state of one request.

    Attributes:
        slot: the draft model's.
        pending: committed tokens that are not cached, one or more, the next tree's root last.
        hidden: vectors of the first of these, as several ``[n, H]``; empty if the model takes none.
        features: the target's for the others.
        draws: tokens sampled in this step.
        held: bytes of the committed text that wait for the rest of their character.
        reading: whether a part of its backlog was read in this step.
        to_commit: entries of the last step to commit before the next forward; None: none are due.
        tree: the policy's tree that ``entries`` belong to.
        entries: cached in this step.
        rows: outputs of this step's forwards, each with its first entry.
    """

    slot: int
    pending: list[int]
    hidden: list[torch.Tensor]
    features: WaitingFeatures
    draws: Draws
    held: bytes = b""
    reading: bool = False
    to_commit: tuple[int, ...] | None = None
    tree: TreeBuilder | None = None
    entries: RolloutEntries | None = None
    rows: list[tuple[int, TargetOutput]] = field(default_factory=list)

    def row(self, entry: int) -> Place:
        """The results of an entry."""
        before, rows = next(found for found in reversed(self.rows) if found[0] <= entry)
        return rows, entry - before


class DraftRollout:
    """A draft model with the state of its sequences.

    Args:
        model: runs the trees.
        vocabulary: maps its outputs to the target's tokens.
        reader: makes its tokens of the target's.
        limit: longest sequence, in tokens, that the model can draft for.
        project: the target's features ``[n, F]`` to the vectors ``[n, H]`` that the model takes.
    """

    #: Rank each node alone, the plain twin of ranking a level at once.
    node_by_node: bool = False

    #: Read long backlogs in pieces while there are other sequences.
    in_pieces: bool = False

    def __init__(
        self,
        model: DraftModel,
        vocabulary: VocabularyMap,
        reader: Reader,
        limit: int,
        project: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._model = model
        self._project = project
        self._limit = limit
        self._vocabulary = vocabulary
        self._reader = reader
        self._sequences: dict[int, _Sequence] = {}
        self._widest = 0
        self._waiting = 0  # bytes of the sequences' features
        self.forwards = 0

    @property
    def slot_bytes(self) -> int:
        """Bytes of a request's recurrent states, and of what is kept of tokens read with a tree."""
        return self._model.info.slot_bytes + _MAX_ALONG * self._model.info.node_bytes

    def begin(
        self, slot: int, committed: Sequence[int], features: torch.Tensor | None = None
    ) -> None:
        """Start a sequence.

        Args:
            slot: the request's.
            committed: its tokens, the first tree's root last.
            features: the target's ``[n, F]`` for them, if the model takes vectors.
        """
        self.release(slot)
        prompt, held = self._reader.begin(committed[:-1])
        first, held = self._reader.read(committed[-1:], held)
        pending = prompt + first
        where = self._model.open(len(pending))
        sequence = _Sequence(where, pending, [], WaitingFeatures(), Draws(self._vocabulary), held)
        self._sequences[slot] = sequence
        self._keep(sequence, features)

    def backlog(self, slot: int) -> int:
        """Number of the model's tokens that it has not read, the next root's last excluded."""
        return len(self._sequences[slot].pending) - 1

    def commit(
        self, slot: int, committed: Sequence[int], features: torch.Tensor | None = None
    ) -> None:
        """Commit a step.

        Args:
            slot: the request's.
            committed: its new tokens, the next root last.
            features: the target's ``[n, F]`` for them, if the model takes vectors.
        """
        sequence = self._sequences[slot]
        sequence.draws.clear()
        sequence.reading = False
        read, sequence.held = self._reader.read(committed, sequence.held)
        entries = sequence.entries
        if entries is None:
            sequence.pending += read
        else:
            if features is None:
                sequence.to_commit, sequence.pending = entries.commit(read)
            else:
                sequence.to_commit = tuple(range(1, entries.root + 1))
                sequence.pending = read
                sequence.hidden.clear()
            sequence.tree = sequence.entries = None
            sequence.rows.clear()
        self._keep(sequence, features)

    def release(self, slot: int) -> None:
        """End a sequence, if there is one."""
        sequence = self._sequences.pop(slot, None)
        if sequence is not None:
            self._waiting -= sequence.features.bytes
            self._model.release(sequence.slot)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` likeliest or sampled tokens after each node; new nodes are forwarded.

        There are none if a path exceeds the draft model's context, or while the model reads.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        for query in queries:
            check(query)
        sequences = [self._sequences[slot] for slot in slots]
        fits = [self._fits(s, q) for s, q in zip(sequences, queries, strict=True)]
        ready = self._ready(sequences, fits)
        able = [(s, q) for s, q, each in zip(sequences, queries, ready, strict=True) if each]
        ranked = most_ranked([q for _, q in able])
        # As wide as ever asked: a node may be asked again, for more.
        self._widest = max(self._widest, ranked)
        while self._forward(able, Needs(top_k=self._widest, host=ranked > 0)):
            self.forwards += 1
        asked = [(s.draws, q, _places(s, q)) for s, q in able]
        found = iter(answers(asked, self._vocabulary, self.node_by_node))
        return [
            next(found) if each else Candidates.none(q)
            for q, each in zip(queries, ready, strict=True)
        ]

    def expand_masks(
        self, slots: Sequence[int], mask: Mask, most: int, needs: Needs
    ) -> list[list[Place]]:
        """The outputs at the root and at each mask of a chain behind it, of one forward.

        There are fewer masks where the draft model's context ends, and no output if the root
        exceeds it, or while the model reads.

        Args:
            slots: of requests that have not drafted in this step.
            mask: the model's.
            most: number of masks.
            needs: what is read of the outputs.
        """
        sequences = [self._sequences[slot] for slot in slots]
        counts = [min(most, self._room(sequence)) for sequence in sequences]
        ready = self._ready(sequences, [count >= 0 for count in counts])
        able = [(s, n) for s, n, each in zip(sequences, counts, ready, strict=True) if each]
        members = [sequence for sequence, _ in able]
        hidden: list[torch.Tensor] = []
        for sequence, count in able:
            entries = sequence.entries = RolloutEntries(sequence.pending, self._reader)
            entries.append_masks(mask.token, count)
            if mask.vector is not None:
                hidden.append(torch.cat([*sequence.hidden, mask.vector.expand(count, -1)]))
        if members:
            self._run(members, [0] * len(members), hidden, needs)
            self.forwards += 1
        return [
            [s.row(s.entries.root + i) for i in range(count + 1)] if s.entries is not None else []
            for s, count in zip(sequences, counts, strict=True)
        ]

    def proposals(self, slot: int, handles: Sequence[int]) -> torch.Tensor:
        """See :meth:`.draws.Draws.proposals`; valid until :meth:`commit`."""
        return self._sequences[slot].draws.proposals(handles)

    def _keep(self, sequence: _Sequence, features: torch.Tensor | None) -> None:
        """Keep features until the model is asked, unless all of them are many."""
        if features is not None:
            self._waiting += sequence.features.add(features)
            if self._waiting > _MOST_WAITING:
                self._compute_vectors([*self._sequences.values()])

    def _compute_vectors(self, sequences: Sequence[_Sequence]) -> None:
        """Compute the vectors of all features that wait, in one call."""
        waiting = [sequence for sequence in sequences if sequence.features.tokens]
        if not waiting or self._project is None:
            return
        counts = [sequence.features.tokens for sequence in waiting]
        self._waiting -= sum(sequence.features.bytes for sequence in waiting)
        features = [each for sequence in waiting for each in sequence.features.take()]
        with torch.inference_mode():
            found = self._project(torch.cat(features) if len(features) > 1 else features[0])
        for sequence, vectors in zip(waiting, torch.split(found, counts), strict=True):
            sequence.hidden.append(vectors)

    def _room(self, sequence: _Sequence) -> int:
        """Positions behind the root in the draft model's context; -1 or less: none for the root."""
        to_commit = 0 if sequence.to_commit is None else len(sequence.to_commit) + 1
        cached = self._model.length(sequence.slot) + to_commit
        return self._limit - cached - len(sequence.pending)

    def _fits(self, sequence: _Sequence, query: Expand) -> bool:
        """Whether the deepest node has a position in the draft model's context."""
        depths = self._reader.depths(query.tree)
        return max(depths[node] for node in query.nodes) <= self._room(sequence)

    def _ready(self, sequences: Sequence[_Sequence], fits: Sequence[bool]) -> list[bool]:
        """Which sequences can draft, once those that fit have caught up."""
        self._catch_up([s for s, fit in zip(sequences, fits, strict=True) if fit])
        return [fit and not self._behind(s) for s, fit in zip(sequences, fits, strict=True)]

    def _catch_up(self, sequences: Sequence[_Sequence]) -> None:
        """Commit what is due and prefill long backlogs, as far as others may wait for it."""
        to_commit = [(s.slot, s.to_commit) for s in sequences if s.to_commit is not None]
        if to_commit:
            self._model.commit([slot for slot, _ in to_commit], [path for _, path in to_commit])
        self._compute_vectors(sequences)
        for sequence in sequences:
            sequence.to_commit = None
        most = MOST_READ if self.in_pieces and len(self._sequences) > 1 else sys.maxsize
        read = [
            (s, min(most, len(s.pending) - 1))
            for s in sequences
            if self._behind(s) and not s.reading
        ]
        if read:
            pieces = [s.pending[:n] for s, n in read]
            vectors = [torch.cat(s.hidden) for s, _ in read if s.hidden]
            given = [v[: len(piece)] for v, piece in zip(vectors, pieces, strict=False)]
            self._model.prefill([s.slot for s, _ in read], pieces, Needs(host=False), given)
            for (sequence, n), each in zip(read, vectors, strict=False):
                sequence.hidden = [each[n:].clone()]
            for sequence, n in read:
                sequence.pending, sequence.reading = sequence.pending[n:], True

    def _behind(self, sequence: _Sequence) -> bool:
        """Whether the model has to read before it drafts: a prompt is read, however short it is."""
        along = _MAX_ALONG if self._model.length(sequence.slot) else 0
        return sequence.entries is None and len(sequence.pending) - 1 > along

    def _forward(self, asked: Sequence[tuple[_Sequence, Expand]], needs: Needs) -> bool:
        """Forward the queried nodes that are not cached, or one generation; False if none is."""
        members: list[_Sequence] = []
        done: list[int] = []
        hidden: list[torch.Tensor] = []
        for sequence, query in asked:
            entries, before = sequence.entries, 0
            if entries is None or sequence.tree is not query.tree:
                entries = sequence.entries = RolloutEntries(sequence.pending, self._reader)
                sequence.tree = query.tree
                sequence.rows.clear()
            else:
                before = len(entries)
            if not sequence.hidden:
                entries.append(query.tree, query.nodes)
            elif before:
                entries.append_generation(query.tree, query.nodes)
            if len(entries) > before:
                members.append(sequence)
                done.append(before)
                if sequence.hidden:
                    hidden.append(_above(sequence, entries, before))
        if members:
            self._run(members, done, hidden, needs)
        return bool(members)

    def _run(
        self,
        members: Sequence[_Sequence],
        done: Sequence[int],
        hidden: Sequence[torch.Tensor],
        needs: Needs,
    ) -> None:
        """Forward the new entries of some sequences, behind those that are done."""
        every = [_entries(sequence) for sequence in members]
        trees = [entries.tree.build() for entries in every]
        # Nobody asks what follows a pending token before the root.
        unread = [max(0, e.root - before) for e, before in zip(every, done, strict=True)]
        unmapped = len(self._vocabulary.unmapped) > 0
        wanted = Needs(host=False) if unmapped else needs
        slots = [sequence.slot for sequence in members]
        rows = self._model.forward(slots, trees, wanted, done, hidden, unread)
        if unmapped:
            rows = [self._vocabulary.mapped_output(each, needs) for each in rows]
        for sequence, before, first, found in zip(members, done, unread, rows, strict=True):
            sequence.rows.append((before + first, found))


def _entries(sequence: _Sequence) -> RolloutEntries:
    assert sequence.entries is not None
    return sequence.entries


def _places(sequence: _Sequence, query: Expand) -> list[Place]:
    entries = _entries(sequence)
    return [sequence.row(entries.entry(node)) for node in query.nodes]


def _above(sequence: _Sequence, entries: RolloutEntries, before: int) -> torch.Tensor:
    """Vectors ``[m, H]`` for the entries from ``before`` on."""
    if not before:
        return torch.cat(sequence.hidden)
    found = []
    for parent in entries.tree.parents[before:]:
        rows, row = sequence.row(parent)
        assert rows.features is not None
        found.append(rows.features[row])
    return torch.stack(found)
