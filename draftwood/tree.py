"""The drafted token tree and its builder.

Node 0 is the root, or anchor: the last committed token, whose keys and values are not cached yet.
Every other node is a drafted token. Parents come before their children. Deterministic siblings
have distinct tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

ROOT = 0
ROOT_SOURCE = "root"

WORD = 64
"""Nodes in a word of ancestors."""


class Draw(IntEnum):
    """The way a node's token was drawn, which decides which verifiers are lossless.

    * ``ONE_HOT``: deterministically (copied, looked up, top-k of q, anything pruned or re-ranked);
    * ``WITHOUT_REPLACEMENT``: sampled from q with its earlier siblings removed;
    * ``IID``: sampled from q independently of its siblings;
    * ``COUPLED``: sampled from q with the random numbers that draw the target's own token
      (:mod:`draftwood.drafters._rollout.coupling`), so that the two are often equal.
    """

    ONE_HOT = 0
    WITHOUT_REPLACEMENT = 1
    IID = 2
    COUPLED = 3


SAMPLED = frozenset({Draw.WITHOUT_REPLACEMENT, Draw.IID})
"""Draws from q with random numbers of their own; accepting such a node depends on q."""


@dataclass(frozen=True, eq=False)
class TokenTree:
    """A finished tree of ``n`` nodes (root included), as parallel arrays of length ``n``.

    Attributes:
        tokens: int64, token ids; ``tokens[0]`` is the anchor.
        parents: int64, index of each node's parent; ``-1`` for the root.
        depths: int64, number of edges to the root.
        logq: float32, natural log of the drafter's estimate for the node given its parent.
        draws: int8, a :class:`Draw` each (``ONE_HOT`` for the root).
        sources: name of the drafter that proposed each node (``"root"`` for the root).
        route: the policy's label of this shape for statistics (e.g. ``"bypass"``).
        q_rows: int64, handle of the q that a sampled node was drawn from; ``-1`` if none.
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    logq: NDArray[np.float32]
    draws: NDArray[np.int8]
    q_rows: NDArray[np.int64]
    sources: tuple[str, ...]
    route: str = ""

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def drafted(self) -> int:
        """Number of drafted nodes, the root excluded (the unit of ``budget``)."""
        return len(self.sources) - 1

    @cached_property
    def depth(self) -> int:
        """Depth of the deepest node."""
        return int(self.depths.max())

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        if not self.drafted:
            return {}
        # Reversed, so that the first drawn of equal siblings (possible with IID draws) stays.
        pairs = list(zip(self.parents.tolist(), self.tokens.tolist(), strict=True))
        return {pairs[i]: i for i in range(len(pairs) - 1, 0, -1)}

    def child(self, node: int, token: int) -> int | None:
        """Index of the first drawn child of ``node`` that carries ``token``, or None."""
        return self._children.get((node, token))

    def path(self, node: int) -> tuple[int, ...]:
        """Node indices from the root's child down to ``node``; empty for the root."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = int(self.parents[node])
        return tuple(reversed(found))

    def path_tokens(self, node: int) -> tuple[int, ...]:
        """Token ids along :meth:`path`."""
        return tuple(int(self.tokens[i]) for i in self.path(node))


# Of a tree without drafted nodes: most steps of large batches have one for each request.
_NO_NODE, _NO_DEPTH = np.array([-1], dtype=np.int64), np.array([0], dtype=np.int64)
_SURE, _ONE_HOT = np.array([0], dtype=np.float32), np.array([Draw.ONE_HOT], dtype=np.int8)


def _root_alone(token: int, route: str) -> TokenTree:
    """A tree without drafted nodes; all of them share the arrays behind the tokens."""
    return TokenTree(
        np.array([token], dtype=np.int64),
        _NO_NODE,
        _NO_DEPTH,
        _SURE,
        _ONE_HOT,
        _NO_NODE,
        (ROOT_SOURCE,),
        route,
    )


class TreeBuilder:
    """Grows a tree node by node; returned indices are those of the finished tree.

    A query refers to a growing tree, so drafters read its plain lists ``tokens``, ``parents`` and
    ``depths``.
    """

    __slots__ = ("_child", "depths", "draws", "logq", "parents", "q_rows", "sources", "tokens")

    def __init__(self, anchor: int) -> None:
        self.tokens: list[int] = [anchor]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.logq: list[float] = [0.0]
        self.draws: list[int] = [Draw.ONE_HOT]
        self.q_rows: list[int] = [-1]
        self.sources: list[str] = [ROOT_SOURCE]
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Number of nodes added so far, the root excluded."""
        return len(self.tokens) - 1

    def child(self, node: int, token: int) -> int | None:
        """Index of the child of ``node`` that carries ``token``, or None."""
        return self._child.get((node, token))

    def path_tokens(self, node: int) -> list[int]:
        """Tokens from the root's child to ``node``, which is the last; none for the root."""
        found = []
        while node != ROOT:
            found.append(self.tokens[node])
            node = self.parents[node]
        return found[::-1]

    def add(
        self,
        parent: int,
        token: int,
        source: str,
        *,
        logq: float = 0.0,
        draw: Draw = Draw.ONE_HOT,
        q_row: int = -1,
    ) -> int:
        """Append a child and return its index.

        A deterministic child with a sibling's token is not added; the sibling's index is returned.
        A token drawn with replacement may repeat and is always added.
        """
        key = (parent, token)
        known = self._child.get(key)
        if known is not None and draw is Draw.ONE_HOT:
            return known
        index = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.logq.append(logq)
        self.draws.append(draw)
        self.q_rows.append(q_row)
        self.sources.append(source)
        if known is None:
            self._child[key] = index
        return index

    def add_chain(self, tokens: Sequence[int], source: str, parent: int = ROOT) -> int:
        """Append ``tokens`` as one path below ``parent``; returns the last node's index."""
        for token in tokens:
            parent = self.add(parent, token, source)
        return parent

    def extend(self, parents: Sequence[int], tokens: Sequence[int], source: str) -> range:
        """Append new deterministic children, parents first."""
        nodes = range(len(self.tokens), len(self.tokens) + len(tokens))
        self._child.update(zip(zip(parents, tokens, strict=True), nodes, strict=True))
        self.tokens += tokens
        for parent in parents:
            self.depths.append(self.depths[parent] + 1)
        self.parents += parents
        self.logq += [0.0] * len(nodes)
        self.draws += [Draw.ONE_HOT] * len(nodes)
        self.q_rows += [-1] * len(nodes)
        self.sources += [source] * len(nodes)
        return nodes

    def build(self, route: str = "") -> TokenTree:
        """The finished tree."""
        return self.part(range(1, len(self)), route)

    def part(
        self, nodes: Sequence[int], route: str = "", logq: Sequence[float] | None = None
    ) -> TokenTree:
        """The tree of the root and some nodes, parents first, in that order.

        Args:
            nodes: of this builder.
            route: of the tree.
            logq: of the nodes, if not as they were added.
        """
        if not nodes:
            return _root_alone(self.tokens[ROOT], route)
        chosen = (ROOT, *nodes)
        logs = [self.logq[node] for node in nodes] if logq is None else logq
        index = dict(zip((-1, *chosen), range(-1, len(chosen)), strict=True))
        tokens, parents, depths, q_rows = np.array(
            [
                [self.tokens[node] for node in chosen],
                [index[self.parents[node]] for node in chosen],
                [self.depths[node] for node in chosen],
                [self.q_rows[node] for node in chosen],
            ],
            dtype=np.int64,
        )
        return TokenTree(
            tokens=tokens,
            parents=parents,
            depths=depths,
            logq=np.array([self.logq[ROOT], *logs], dtype=np.float32),
            draws=np.frombuffer(bytes([self.draws[node] for node in chosen]), dtype=np.int8),
            q_rows=q_rows,
            sources=tuple([self.sources[node] for node in chosen]),
            route=route,
        )


def tree_of(tokens: Sequence[int], parents: Sequence[int], source: str = "given") -> TokenTree:
    """Build a deterministic tree from lists of tokens and parents.

    Raises:
        DraftwoodError: lengths differ, the root is not first, or a parent follows its child.
    """
    if len(tokens) != len(parents) or not tokens or parents[0] != -1:
        raise DraftwoodError("a tree needs equally many tokens and parents, with parents[0] = -1")
    builder = TreeBuilder(tokens[0])
    for i in range(1, len(tokens)):
        if not 0 <= parents[i] < i:
            raise DraftwoodError(f"node {i} names parent {parents[i]}, not an earlier node")
        if builder.add(parents[i], tokens[i], source) != i:
            raise DraftwoodError(f"node {i} repeats the token of one of its siblings")
    return builder.build()


def ancestors(parents: Sequence[int]) -> NDArray[np.uint8]:
    """0/1 matrix ``[n, n]``: 1 at ``(i, j)`` if node ``j`` is ``i`` or an ancestor of it."""
    packed = ancestor_words(parents).view(np.uint8)
    return np.unpackbits(packed, axis=1, count=len(parents), bitorder="little")


def ancestor_words(parents: Sequence[int]) -> NDArray[np.int64]:
    """Words ``[n, ceil(n / 64)]``: bit j of row i is set if node j is i or an ancestor of it."""
    n = len(parents)
    count = -(-n // WORD)
    bits = [1]
    for i in range(1, n):
        bits.append(bits[parents[i]] | 1 << i)
    packed = b"".join([each.to_bytes(8 * count, "little") for each in bits])
    return np.frombuffer(packed, dtype="<i8").reshape(n, count)


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """How many first elements two sequences share."""
    different = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(different, min(len(one), len(other)))
