"""A trie of token paths, and tables of ranked tokens for its nodes.

Nodes are integers. Node ``i`` below ``len(main)`` is position ``i`` of the text, the path of its
first ``i + 1`` tokens. Further nodes branch off; their parents come before them.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

UNKNOWN = -1
"""Node of a path that is not in the trie, and row of a node that is not in a table."""

NO_TOKEN = -1
"""Fills rows that have fewer tokens than their table has columns."""

_SHIFT = 32


class PathTrie:
    """A text and the token paths that branch off it.

    Args:
        main: tokens of the text, at least one.
        parents: parent of each branching node, in order.
        tokens: token of each branching node.

    Raises:
        DraftwoodError: a node's parent does not come before it, or a path occurs twice.
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

    def extend(self, nodes: list[int], tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Append the trie's nodes for the nodes of a tree from ``len(nodes)`` on.

        Args:
            nodes: trie nodes found so far, the root first; :data:`UNKNOWN` for unknown paths.
            tokens: tokens of all nodes of the tree.
            parents: their parents in the tree.
        """
        child = self._child
        for i in range(len(nodes), len(tokens)):
            above = nodes[parents[i]]
            nodes.append(child.get(above << _SHIFT | tokens[i], UNKNOWN) if above >= 0 else UNKNOWN)

    def insert(self, root: int, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Add the paths of a tree whose root is node ``root``; returns the node of each."""
        child, nodes = self._child, [root]
        for token, parent in zip(tokens[1:], parents[1:], strict=True):
            key = nodes[parent] << _SHIFT | token
            node = child.get(key)
            if node is None:
                node = child[key] = len(self)
                self.parents.append(nodes[parent])
                self.tokens.append(token)
            nodes.append(node)
        return nodes


class RankedRows:
    """Table of the likeliest tokens, with a value each; one row per key.

    Args:
        width: columns.
        keys: one for each row, all different.
        asked: number of tokens that each row was requested with; a row with fewer is complete.
        tokens: int32 ``[n, width]``, likeliest first, then :data:`NO_TOKEN`.
        values: float32 ``[n, width]``.
    """

    def __init__(
        self,
        width: int,
        keys: Sequence[int] = (),
        asked: Sequence[int] = (),
        tokens: NDArray[np.int32] | None = None,
        values: NDArray[np.float32] | None = None,
    ) -> None:
        self.keys = list(keys)
        self.asked = list(asked)
        self._tokens = np.empty((0, width), dtype=np.int32) if tokens is None else tokens
        self._values = np.empty((0, width), dtype=np.float32) if values is None else values

    @cached_property
    def index(self) -> dict[int, int]:
        """Row number by key."""
        return {key: row for row, key in enumerate(self.keys)}

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self._tokens.shape[1])

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Tokens of all rows, ``[n, width]``."""
        return self._tokens[: len(self.keys)]

    @property
    def values(self) -> NDArray[np.float32]:
        """Values of all rows, ``[n, width]``."""
        return self._values[: len(self.keys)]

    def __len__(self) -> int:
        return len(self.keys)

    def put(
        self,
        keys: Sequence[int],
        asked: int,
        tokens: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> None:
        """Store rows ``[n, k]``, unless a key has a row that was requested with as many tokens."""
        k = tokens.shape[1]
        if k > self.width:
            pad = ((0, 0), (0, k - self.width))
            self._tokens = np.pad(self._tokens, pad, constant_values=NO_TOKEN)
            self._values = np.pad(self._values, pad, constant_values=-np.inf)
        index = self.index
        for i, key in enumerate(keys):
            row = index.get(key)
            if row is None:
                row = index[key] = len(self.keys)
                self.keys.append(key)
                self.asked.append(asked)
                if row == len(self._tokens):
                    self._add_rows()
            elif self.asked[row] >= asked:
                continue
            self.asked[row] = asked
            self._tokens[row, :k], self._tokens[row, k:] = tokens[i], NO_TOKEN
            self._values[row, :k], self._values[row, k:] = values[i], -np.inf

    def take(self, rows: Sequence[int], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Copy the first ``k`` columns of some rows: int64 and float32 ``[n, k]``."""
        where = np.array(rows, dtype=np.int64)
        tokens, values = self._tokens.take(where, axis=0), self._values.take(where, axis=0)
        return tokens[:, :k].astype(np.int64), values[:, :k]

    def _add_rows(self) -> None:
        pad = ((0, max(64, len(self._tokens) // 2)), (0, 0))
        self._tokens = np.pad(self._tokens, pad)
        self._values = np.pad(self._values, pad)
