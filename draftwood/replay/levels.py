"""Counts the forwards of a draft model that nobody runs: one for each level that would be new.

The rule is that of :class:`draftwood.levels.Levels`: a node that was asked about is scored once a
step, with those of its ancestors that were not. Knows nothing of rows.
"""

from collections.abc import Sequence

import numpy as np

from draftwood.tree import ROOT, TreeBuilder


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
