"""A trie of token paths: a text, and what was drafted beside it.

Nodes are integers. Node ``i`` below ``len(main)`` is the text's position ``i``: the path of its
first ``i + 1`` tokens. Further nodes leave the text somewhere; their parents come before them.
Knows nothing of rows.
"""

from collections.abc import Sequence
from functools import cached_property

from draftwood.errors import DraftwoodError

NOWHERE = -1
"""Stands for a path that is not in the trie."""

_SHIFT = 32


class Paths:
    """See the module.

    Args:
        main: the text, at least one token.
        parents: of the nodes beside the text, in their order.
        tokens: theirs.

    Raises:
        DraftwoodError: a node's parent does not come before it, or it repeats another one.
    """

    def __init__(
        self, main: Sequence[int], parents: Sequence[int] = (), tokens: Sequence[int] = ()
    ) -> None:
        self.main = list(main)
        self.parents = list(parents)
        self.tokens = list(tokens)
        for node, parent in enumerate(self.parents, start=len(self.main)):
            if not 0 <= parent < node:
                raise DraftwoodError(f"path {node} follows path {parent}, which comes later")

    @cached_property
    def _child(self) -> dict[int, int]:
        found = {i << _SHIFT | token: i + 1 for i, token in enumerate(self.main[1:])}
        first = len(self.main)
        for i, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True)):
            found[parent << _SHIFT | token] = first + i
        if len(found) != first - 1 + len(self.parents):
            raise DraftwoodError("two paths of a recording are the same")
        return found

    def __len__(self) -> int:
        return len(self.main) + len(self.parents)

    def follow(self, found: list[int], tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Append to ``found`` the nodes of a tree's nodes from ``len(found)`` on.

        Args:
            found: of the tree's nodes so far, its root first; :data:`NOWHERE` is a node too.
            tokens: of all nodes of the tree.
            parents: theirs.
        """
        child = self._child
        for i in range(len(found), len(tokens)):
            above = found[parents[i]]
            found.append(child.get(above << _SHIFT | tokens[i], NOWHERE) if above >= 0 else NOWHERE)

    def lay(self, root: int, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The nodes of a tree that hangs at ``root``; those that are new are added."""
        child, found = self._child, [root]
        for token, parent in zip(tokens[1:], parents[1:], strict=True):
            key = found[parent] << _SHIFT | token
            node = child.get(key)
            if node is None:
                node = child[key] = len(self)
                self.parents.append(found[parent])
                self.tokens.append(token)
            found.append(node)
        return found
