"""What a draft model's cache holds of one sequence behind its committed tokens, in cell order.

A growing tree is forwarded level by level, so its nodes lie in the cache in the order in which they
were forwarded, behind the committed tokens that the cache does not hold yet. Nodes that nobody
expands are never forwarded. Knows nothing of models and tensors.
"""

from collections.abc import Sequence

from draftwood.tree import ROOT, TreeBuilder


class RolloutSlots:
    """One step of one sequence.

    Args:
        pending: committed tokens that are not cached, oldest first; the last is the tree's root.

    Attributes:
        tree: the forwarded tokens as a tree whose node i lies in cell i: ``pending`` as a chain,
            then nodes of the drafted tree.
        root: the cell of the drafted tree's root.
    """

    def __init__(self, pending: Sequence[int]) -> None:
        self.tree = TreeBuilder(pending[0])
        self.root = self.tree.add_chain(pending[1:], "pending")
        self._cell = {ROOT: self.root}

    def __len__(self) -> int:
        return len(self.tree)

    def cell(self, node: int) -> int:
        """Where a node of the drafted tree lies."""
        return self._cell[node]

    def lay(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        """Append ``nodes`` of the drafted tree, and those of their ancestors that are missing."""
        self._append(grown, self._missing(grown, nodes))

    def lay_generation(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        """Append those of :meth:`lay` whose parents lie in a cell already."""
        missing = self._missing(grown, nodes)
        self._append(grown, [node for node in missing if grown.parents[node] in self._cell])

    def _missing(self, grown: TreeBuilder, nodes: Sequence[int]) -> list[int]:
        missing: set[int] = set()
        for start in nodes:
            node = start
            while node not in self._cell and node not in missing:
                missing.add(node)
                node = grown.parents[node]
        return sorted(missing)  # parents come before their children

    def _append(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        for node in nodes:
            above = self._cell[grown.parents[node]]
            self._cell[node] = self.tree.add(above, grown.tokens[node], "drafted")

    def settle(self, committed: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
        """What a finished step keeps.

        Args:
            committed: tokens that were committed behind the root, one or more.

        Returns:
            The cells to keep, cell 0 left out as in a tree's path, and the committed tokens that
            none of them holds: the last one at least, which is the next root. (It may have been
            forwarded and then left out of the tree; its row is wanted all the same.)
        """
        path = list(range(1, self.root + 1))
        cell = self.root
        for token in committed[:-1]:
            child = self.tree.child(cell, token)
            if child is None:
                break
            path.append(child)
            cell = child
        return tuple(path), list(committed[len(path) - self.root :])
