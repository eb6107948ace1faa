"""A drafter that answers from a recording of its model.

Rows are found by a node's path from the beginning of the text. If the drafter is *rooted* (its rows
depend on the tree's root, as those of a head on hidden states do), the root is part of the key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import MissingRowError, Text, draft_name, rooted_key
from draftwood.lab.replay.rows import NO_TOKEN, UNKNOWN, RankedRows
from draftwood.protocols import Candidates, Drafter, Expand, Outcome, Prefill
from draftwood.tree import ROOT, Draw, TreeBuilder


class ForwardLog:
    """Counts the forwards that a drafter's model would make.

    Attributes:
        forwards: number of forwards so far.
    """

    def __init__(self) -> None:
        self.forwards = 0
        self._widths: list[int] = []
        self._scored: set[int] = set()
        self._tree: TreeBuilder | None = None

    def next_step(self) -> None:
        """Begin a step: no node of its tree has been scored."""
        self._tree = None

    def take(self) -> tuple[int, ...]:
        """Number of nodes scored in each forward since the last call."""
        widths = tuple(self._widths)
        self._widths.clear()
        return widths

    def score(self, tree: TreeBuilder, nodes: Sequence[int]) -> None:
        """Score ``nodes`` and their new ancestors in one forward, as a draft model does."""
        new = self._new(tree, nodes)
        if new:
            self._count(len(new))

    def score_by_level(self, tree: TreeBuilder, nodes: Sequence[int]) -> None:
        """Score new nodes after their parents, a forward per level, as an EAGLE head does."""
        level: dict[int, int] = {}
        for node in sorted(self._new(tree, nodes)):  # parents come before their children
            level[node] = level.get(tree.parents[node], -1) + 1
        for width in np.bincount(list(level.values()) or [], minlength=0).tolist():
            self._count(width)

    def _count(self, nodes: int) -> None:
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
    """A request: its text, the position of the tree's root, the number of tokens that the model
    would have cached, and the trie's nodes for the growing tree."""

    text: Text
    root: int
    cached: int = 0
    tree: TreeBuilder | None = None
    nodes: list[int] = field(default_factory=list)


class ReplayDrafter(Drafter):
    """Answers from a recording, over the turns of one prompt.

    Args:
        name: the drafter's name in the recording.
        texts: turns, by their context.
        rooted: whether each recorded drafter is rooted, by name.
        log: counts the forwards that the model would make.
    """

    def __init__(
        self,
        name: str,
        texts: Mapping[tuple[int, ...], Text],
        rooted: Mapping[str, bool],
        log: ForwardLog,
    ) -> None:
        self._name = name
        self._texts = texts
        self._rooted = rooted
        self._log = log
        self._slots: dict[int, _Slot] = {}

    @property
    def forwards(self) -> int:
        """Forwards that the model would have made."""
        return self._log.forwards

    def backlog(self, slot: int) -> int:
        """Number of tokens that the model would not have cached."""
        return self._slots[slot].root - self._slots[slot].cached

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request."""
        text = self._texts[tuple(prefill.prompt.tolist())]
        self._slots[slot] = _Slot(text, len(prefill.prompt))
        self._log.next_step()

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Move the root past the committed tokens."""
        state = self._slots[slot]
        state.root += len(outcome.committed)
        state.tree = None
        self._log.next_step()

    def release(self, slot: int) -> None:
        """Forget a request."""
        self._slots.pop(slot, None)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The model's ``k`` likeliest children of each node.

        Raises:
            MissingRowError: the recording lacks a node, or has fewer children of it.
            DraftwoodError: a query asks for sampled children.
        """
        return [
            self._candidates(self._slots[slot], query)
            for slot, query in zip(slots, queries, strict=True)
        ]

    def learn(self, slot: int, query: Expand, answer: Candidates) -> None:
        """Record the model's answer to a query without excluded tokens.

        An answer without any token means that the deepest nodes are beyond the model's context. It
        is recorded for these nodes only, and :meth:`expand` then returns no token either.
        """
        state = self._slots[slot]
        nodes = state.text.paths.insert(state.root, query.tree.tokens, query.tree.parents)
        state.tree = None
        name = draft_name(self._name, query.temperature)
        table = state.text.drafts.setdefault(name, RankedRows(query.k))
        asked: list[int] = list(query.nodes)
        rows = list(range(len(asked)))
        if (answer.tokens == NO_TOKEN).all():
            deepest = max(query.tree.depths[node] for node in asked)
            rows = [i for i in rows if query.tree.depths[asked[i]] == deepest]
        keys = self._keys(state, [nodes[asked[i]] for i in rows])
        table.put(keys, query.k, answer.tokens[rows], answer.logq[rows])

    def _candidates(self, state: _Slot, query: Expand) -> Candidates:
        if query.draw is not Draw.ONE_HOT:
            raise DraftwoodError(
                "a recording ranks tokens and draws none; ask it for one-hot children"
            )
        tree = query.tree
        if state.tree is not tree:
            state.tree, state.nodes = tree, [state.root]
        state.text.paths.extend(state.nodes, tree.tokens, tree.parents)
        missing = MissingRowError(
            f"the recording has no answer of the drafter {self._name} for a drafted path"
        )
        table = state.text.drafts.get(draft_name(self._name, query.temperature))
        if table is None:
            raise missing
        nodes = [state.nodes[node] for node in query.nodes]
        rows = [table.index.get(key, UNKNOWN) for key in self._keys(state, nodes)]
        known = [row for row in rows if row >= 0]
        wanted = query.k + max(map(len, query.exclude), default=0)
        tokens, logq = table.take(known, wanted)
        if known and (tokens[:, 0] == NO_TOKEN).any():
            return Candidates.none(query)
        if len(known) < len(rows) or _truncated(table, known, wanted):
            raise missing
        state.cached = state.root
        score = self._log.score_by_level if self._rooted[self._name] else self._log.score
        score(tree, query.nodes)
        candidates = Candidates(tokens, logq)
        return candidates if tokens.shape[1] == query.k else _without_excluded(candidates, query)

    def _keys(self, state: _Slot, nodes: Sequence[int]) -> list[int]:
        if not self._rooted[self._name]:
            return list(nodes)
        return [rooted_key(state.root, node) if node >= 0 else UNKNOWN for node in nodes]


def _truncated(table: RankedRows, rows: Sequence[int], wanted: int) -> bool:
    """Whether a row was requested with fewer tokens than wanted, and may have more."""
    short = [row for row in rows if table.asked[row] < wanted]
    return any(bool((table.tokens[row, : table.asked[row]] != NO_TOKEN).all()) for row in short)


def _without_excluded(given: Candidates, query: Expand) -> Candidates:
    """The first ``k`` tokens of each row that the query does not exclude."""
    found = Candidates.none(query)
    excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
    for i, exclude in enumerate(excludes):
        row = given.tokens[i].tolist()
        kept = [j for j, t in enumerate(row) if t != NO_TOKEN and t not in exclude][: query.k]
        found.tokens[i, : len(kept)] = given.tokens[i, kept]
        found.logq[i, : len(kept)] = given.logq[i, kept]
    return found
