"""Draft forwards that a replay or a simulation stands for."""

from collections.abc import Sequence

import numpy as np

from draftwood.tree import ROOT, TreeBuilder


class ForwardLog:
    """Number of forwards that a drafter's model would have made, and the nodes of each.

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
        for width in np.bincount(list(level.values())).tolist():
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
