"""A drafter without its model: it answers from what the model said when it was there.

Rows are looked up by the path of a node from the beginning of the text and, for a drafter that is
rooted, by where the tree began. Knows nothing of models and policies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import MissingRowError, Text, draft_name, rooted_key
from draftwood.lab.replay.rows import NO_TOKEN, NOWHERE, Ranked
from draftwood.protocols import Candidates, Continuation, Expand, Needs, Outcome, Prefill
from draftwood.tree import ROOT, Draw, TreeBuilder


class LevelLog:
    """Forwards of one drafter.

    Attributes:
        forwards: so far.
    """

    def __init__(self) -> None:
        self.forwards = 0
        self._widths: list[int] = []
        self._scored: set[int] = set()
        self._tree: TreeBuilder | None = None

    def next_step(self) -> None:
        """Nothing of the next tree has been scored."""
        self._tree = None

    def taken(self) -> tuple[int, ...]:
        """Nodes scored in each forward since the last call."""
        found = tuple(self._widths)
        self._widths.clear()
        return found

    def ask(self, tree: TreeBuilder, nodes: Sequence[int]) -> None:
        """A drafter that scores everything new in one forward is asked about ``nodes``."""
        new = self._new(tree, nodes)
        if new:
            self._score(len(new))

    def ask_by_generation(self, tree: TreeBuilder, nodes: Sequence[int]) -> None:
        """So is one that needs what it yielded for a node's parent first."""
        generation: dict[int, int] = {}
        for node in sorted(self._new(tree, nodes)):  # parents come before their children
            generation[node] = generation.get(tree.parents[node], -1) + 1
        for width in np.bincount(list(generation.values()) or [], minlength=0).tolist():
            self._score(width)

    def _score(self, nodes: int) -> None:
        self.forwards += 1
        self._widths.append(nodes)

    def _new(self, tree: TreeBuilder, nodes: Sequence[int]) -> list[int]:
        """Nodes that this step has not scored, each before its ancestors."""
        if self._tree is not tree:
            self._tree, self._scored = tree, set()
            nodes = [*nodes, ROOT]
        scored, parents = self._scored, tree.parents
        new: list[int] = []
        for start in nodes:
            node = start
            while node >= 0 and node not in scored:
                scored.add(node)
                new.append(node)
                node = parents[node]
        return new


@dataclass
class _Slot:
    """A request: its text, the place of the tree's root, tokens that the model would have read, and
    the nodes of the growing tree."""

    text: Text
    root: int
    read: int = 0
    tree: TreeBuilder | None = None
    nodes: list[int] = field(default_factory=list)


class RecordedDrafter:
    """Implements :class:`draftwood.protocols.Drafter` over the turns of one prompt.

    Args:
        name: the drafter's, by which its rows are kept.
        texts: by context.
        rooted: of each drafter that has been recorded.
        log: told of every forward that the model would have made.
    """

    def __init__(
        self,
        name: str,
        texts: Mapping[tuple[int, ...], Text],
        rooted: Mapping[str, bool],
        log: LevelLog,
    ) -> None:
        self._name = name
        self._texts = texts
        self._rooted = rooted
        self._log = log
        self._slots: dict[int, _Slot] = {}

    @property
    def needs(self) -> Needs:
        """Nothing: what the model read has been read."""
        return Needs()

    @property
    def forwards(self) -> int:
        """Forward passes that the model would have made."""
        return self._log.forwards

    def backlog(self, slot: int) -> int:
        """What the model would not have read."""
        return self._slots[slot].root - self._slots[slot].read

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        text = self._texts[tuple(prefill.prompt.tolist())]
        self._slots[slot] = _Slot(text, len(prefill.prompt))
        self._log.next_step()

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        place = self._slots[slot]
        place.root += len(outcome.committed)
        place.tree = None
        self._log.next_step()

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._slots.pop(slot, None)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Nothing: a drafter that copies text needs no recording."""
        return [() for _ in slots]

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """None: nothing here is sampled.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("a recording ranks tokens and draws none; its children are one-hot")

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` likeliest children of each node, as the model ranked them.

        Raises:
            MissingRowError: the model has not been asked about a node, or for fewer children.
            DraftwoodError: a query asks for sampled children.
        """
        return [
            self._answer(self._slots[slot], query)
            for slot, query in zip(slots, queries, strict=True)
        ]

    def learn(self, slot: int, query: Expand, answer: Candidates) -> None:
        """Keep what the model answered to a query without excluded tokens.

        An answer of nothing at all means that the deepest nodes have no position in the model's
        context; it is kept for these, and makes :meth:`expand` offer nothing as well.
        """
        place = self._slots[slot]
        nodes = place.text.paths.lay(place.root, query.tree.tokens, query.tree.parents)
        place.tree = None
        name = draft_name(self._name, query.temperature)
        table = place.text.drafts.setdefault(name, Ranked(query.k))
        asked: list[int] = list(query.nodes)
        rows = list(range(len(asked)))
        if (answer.tokens == NO_TOKEN).all():
            deepest = max(query.tree.depths[node] for node in asked)
            rows = [i for i in rows if query.tree.depths[asked[i]] == deepest]
        keys = self._keys(place, [nodes[asked[i]] for i in rows])
        table.put(keys, query.k, answer.tokens[rows], answer.logq[rows])

    def _answer(self, place: _Slot, query: Expand) -> Candidates:
        if query.draw is not Draw.ONE_HOT:
            raise DraftwoodError(
                "a recording ranks tokens and draws none; ask it for one-hot children"
            )
        tree = query.tree
        if place.tree is not tree:
            place.tree, place.nodes = tree, [place.root]
        place.text.paths.follow(place.nodes, tree.tokens, tree.parents)
        table = place.text.drafts.get(draft_name(self._name, query.temperature))
        if table is None:
            raise self._missing()
        nodes = [place.nodes[node] for node in query.nodes]
        places = [table.places.get(key, NOWHERE) for key in self._keys(place, nodes)]
        known = [row for row in places if row >= 0]
        wanted = query.k + max(map(len, query.exclude), default=0)
        found, logq = table.take(known, wanted)
        if known and (found[:, 0] == NO_TOKEN).any():
            return _nothing(query)
        if len(known) < len(places) or _cut(table, known, wanted):
            raise self._missing()
        place.read = place.root
        if self._rooted[self._name]:
            self._log.ask_by_generation(tree, query.nodes)
        else:
            self._log.ask(tree, query.nodes)
        answer = Candidates(found, logq)
        if found.shape[1] == query.k:
            return answer
        return _without(answer, query)

    def _keys(self, place: _Slot, nodes: Sequence[int]) -> list[int]:
        if not self._rooted[self._name]:
            return list(nodes)
        return [rooted_key(place.root, node) if node >= 0 else NOWHERE for node in nodes]

    def _missing(self) -> MissingRowError:
        return MissingRowError(
            f"the recording has no answer of the drafter {self._name} for a drafted path"
        )


def _cut(table: Ranked, rows: Sequence[int], wanted: int) -> bool:
    """Whether a row was asked for fewer tokens and may have more."""
    short = [row for row in rows if table.asked[row] < wanted]
    return any(bool((table.tokens[row, : table.asked[row]] != NO_TOKEN).all()) for row in short)


def _nothing(query: Expand) -> Candidates:
    shape = (len(query.nodes), query.k)
    return Candidates(
        np.full(shape, NO_TOKEN, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
    )


def _without(given: Candidates, query: Expand) -> Candidates:
    """The first ``k`` of each row that are not excluded."""
    found = _nothing(query)
    excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
    for i, exclude in enumerate(excludes):
        row = given.tokens[i].tolist()
        kept = [j for j, t in enumerate(row) if t != NO_TOKEN and t not in exclude][: query.k]
        found.tokens[i, : len(kept)] = given.tokens[i, kept]
        found.logq[i, : len(kept)] = given.logq[i, kept]
    return found
