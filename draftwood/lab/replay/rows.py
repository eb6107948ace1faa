"""A trie of token paths: a text, and what was drafted beside it.

Nodes are integers. Node ``i`` below ``len(main)`` is the text's position ``i``: the path of its
first ``i + 1`` tokens. Further nodes leave the text somewhere; their parents come before them.
Knows nothing of rows.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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


NO_TOKEN = -1


class Ranked:
    """Rows of at most ``width`` tokens with a value each, likeliest first.

    Args:
        width: columns.
        keys: of the rows, in order, each once.
        asked: how many tokens each row was asked for; a row with fewer has all there are.
        tokens: int32 ``[n, width]``, :data:`NO_TOKEN` where there is none.
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
    def places(self) -> dict[int, int]:
        """Where the row of each key is."""
        return {key: place for place, key in enumerate(self.keys)}

    @property
    def width(self) -> int:
        """Columns."""
        return int(self._tokens.shape[1])

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All rows' tokens."""
        return self._tokens[: len(self.keys)]

    @property
    def values(self) -> NDArray[np.float32]:
        """All rows' values."""
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
        """Keep rows ``[n, k]``; a row that is there and was asked for as much stays as it is."""
        k = tokens.shape[1]
        self._widen(k)
        places = self.places
        for i, key in enumerate(keys):
            place = places.get(key)
            if place is None:
                place = places[key] = len(self.keys)
                self.keys.append(key)
                self.asked.append(asked)
                if place == len(self._tokens):
                    self._lengthen()
            elif self.asked[place] >= asked:
                continue
            self.asked[place] = asked
            self._tokens[place, :k], self._tokens[place, k:] = tokens[i], NO_TOKEN
            self._values[place, :k], self._values[place, k:] = values[i], -np.inf

    def take(self, places: Sequence[int], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The first ``k`` columns of some rows: int64 and float32 ``[n, k]``, copies."""
        where = np.array(places, dtype=np.int64)
        tokens, values = self._tokens.take(where, axis=0), self._values.take(where, axis=0)
        return tokens[:, :k].astype(np.int64), values[:, :k]

    def _widen(self, width: int) -> None:
        more = width - self.width
        if more > 0:
            pad = ((0, 0), (0, more))
            self._tokens = np.pad(self._tokens, pad, constant_values=NO_TOKEN)
            self._values = np.pad(self._values, pad, constant_values=-np.inf)

    def _lengthen(self) -> None:
        rows = max(64, len(self._tokens) // 2)
        self._tokens = np.concatenate((self._tokens, np.empty((rows, self.width), dtype=np.int32)))
        self._values = np.concatenate(
            (self._values, np.empty((rows, self.width), dtype=np.float32))
        )
