"""Draft forwards that a replay or a simulation stands for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from draftwood.tree import ROOT, TreeBuilder

Asked: TypeAlias = tuple[int, TreeBuilder, Sequence[int]]
"""What a forward is asked about one request: its slot, its tree, and nodes of the tree."""


class ForwardLog:
    """Number of forwards that a drafter's model would have made, and the nodes of each.

    Attributes:
        forwards: number of forwards so far.
    """

    def __init__(self) -> None:
        self.forwards = 0
        self._widths: list[int] = []
        # Of each slot, its tree and the nodes that were scored.
        self._scored: dict[int, tuple[TreeBuilder, set[int]]] = {}

    def next_step(self, slot: int) -> None:
        """Begin a step of a request: no node of its tree has been scored."""
        self._scored.pop(slot, None)

    def take(self) -> tuple[int, ...]:
        """Number of nodes scored in each forward since the last call."""
        widths = tuple(self._widths)
        self._widths.clear()
        return widths

    def score(self, asked: Iterable[Asked]) -> None:
        """Score nodes and their new ancestors in one forward, as a draft model does."""
        new = sum(len(self._new(*each)) for each in asked)
        if new:
            self._count(new)

    def score_by_level(self, asked: Iterable[Asked]) -> None:
        """Score new nodes after their parents, a forward per level, as an EAGLE head does."""
        widths = Counter[int]()
        for slot, tree, nodes in asked:
            level: dict[int, int] = {}
            for node in sorted(self._new(slot, tree, nodes)):  # parents before their children
                level[node] = level.get(tree.parents[node], -1) + 1
            widths.update(level.values())
        for place in sorted(widths):
            self._count(widths[place])

    def _count(self, nodes: int) -> None:
        self.forwards += 1
        self._widths.append(nodes)

    def _new(self, slot: int, tree: TreeBuilder, nodes: Sequence[int]) -> list[int]:
        """Nodes that this step has not scored, each before its ancestors."""
        known, scored = self._scored.get(slot, (None, set[int]()))
        if known is not tree:
            scored = set()
            self._scored[slot] = tree, scored
            nodes = [*nodes, ROOT]
        parents = tree.parents
        new: list[int] = []
        for start in nodes:
            node = start
            while node >= 0 and node not in scored:
                scored.add(node)
                new.append(node)
                node = parents[node]
        return new
