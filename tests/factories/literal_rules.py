"""Accept rules as literally as the papers print them, in exact fractions or in floats.

A tree is a list of nodes; a node's children are verified in the order of the list. Nothing here
uses the package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Number: TypeAlias = Any
"""A Fraction or a float."""

Dist: TypeAlias = list[Number]
Path: TypeAlias = tuple[int, ...]
Law: TypeAlias = Callable[[Path], Dist]


@dataclass
class Tree:
    """Tokens, parents and distributions of the tokens; node 0 is the root."""

    token: list[int]
    parent: list[int]
    q: list[Dist]

    def children(self, node: int) -> list[int]:
        return [i for i, above in enumerate(self.parent) if above == node and i]

    def path(self, node: int) -> Path:
        return () if node == 0 else (*self.path(self.parent[node]), self.token[node])


class Result:
    """Outcome of a rule on a tree.

    Attributes:
        end: probability that the node is the last accepted one.
        bonus: law of the next token in that case; None if it cannot be.
        asked: acceptance of each node when the rule reaches it, in that order (traversal only).
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.end: Dist = [0] * len(tree.token)
        self.bonus: list[Dist | None] = [None] * len(tree.token)
        self.asked: dict[int, Number] = {}

    def accepted(self) -> Number:
        """Expected number of accepted tokens."""
        return sum(len(self._tree.path(node)) * end for node, end in enumerate(self.end))

    def output(self) -> dict[Path, Number]:
        """Law of the committed tokens."""
        found: dict[Path, Number] = {}
        for node, row in enumerate(self.bonus):
            for token, share in enumerate(row or []):
                if share:
                    key = (*self._tree.path(node), token)
                    found[key] = found.get(key, 0) + self.end[node] * share
        return found


def normal(row: Dist) -> Dist:
    total = sum(row)
    return [x / total for x in row] if total else row


def residual(weight: Number, p: Dist, q: Dist) -> Dist:
    return [max(weight * a - b, 0) for a, b in zip(p, q, strict=True)]


def traversal(tree: Tree, p: Law) -> Result:
    """Algorithm 3 of the paper: the first leaf, accepted or dropped, until the root is left."""
    n = len(tree.token)
    result = Result(tree)
    rows = [p(tree.path(node)) for node in range(n)]
    share: Dist = [1] * n
    left = [tree.children(node) for node in range(n)]

    def refresh(node: int) -> None:
        for child in left[node]:
            token = tree.token[child]
            share[child] = min(1, share[node] * rows[node][token] / tree.q[child][token])
            refresh(child)

    refresh(0)
    reached: Number = 1
    while True:
        node = 0
        while left[node]:
            node = left[node][0]
        result.asked[node] = share[node]
        result.end[node] = reached * share[node]
        if result.end[node]:
            result.bonus[node] = rows[node]
        if node == 0:
            return result
        reached *= 1 - share[node]
        above = tree.parent[node]
        left[above].remove(node)
        rest = residual(share[above], rows[above], tree.q[node])
        total = sum(rest)
        if above:
            share[above] = total / (total + 1 - share[above]) if total else 0
        if total:
            rows[above] = normal(rest)
        refresh(above)


def rejection(tree: Tree, p: Law) -> Result:
    """Every sibling in turn against the residual of the earlier ones, from the root down."""
    result = Result(tree)

    def descend(node: int, reached: Number) -> None:
        row = p(tree.path(node))
        for child in tree.children(node):
            token = tree.token[child]
            accept = min(1, row[token] / tree.q[child][token])
            descend(child, reached * accept)
            reached *= 1 - accept
            row = normal(residual(1, row, tree.q[child]))
        result.end[node] = reached
        result.bonus[node] = row if reached else None

    descend(0, 1)
    return result


def naive(tree: Tree, p: Law) -> Result:
    """A token from p; if a child carries it, on to that child."""
    result = Result(tree)

    def descend(node: int, reached: Number) -> None:
        row = list(p(tree.path(node)))
        for child in tree.children(node):
            token = tree.token[child]
            if row[token]:
                descend(child, reached * row[token])
                row[token] = 0
        result.end[node] = reached * sum(row)
        result.bonus[node] = normal(row) if result.end[node] else None

    descend(0, 1)
    return result


def block(tree: Tree, p: Law) -> Result:
    """Block verification of a chain: the longest prefix whose own number lets it through."""
    n = len(tree.token)
    result = Result(tree)
    reach: Dist = [1]
    for node in range(1, n):
        row = p(tree.path(node - 1))
        token = tree.token[node]
        reach.append(min(1, reach[-1] * row[token] / tree.q[node][token]))
    missed: Number = 1
    for node in reversed(range(n)):
        row, keep = p(tree.path(node)), reach[node]
        if node < n - 1:
            rest = residual(reach[node], row, tree.q[node + 1])
            total = sum(rest)
            keep = total / (total + 1 - reach[node]) if total else 0
            row = normal(rest) if total else row
        if node == 0:
            keep = 1
        result.end[node] = missed * keep
        result.bonus[node] = row if result.end[node] else None
        missed *= 1 - keep
    return result


RULES: dict[str, Callable[[Tree, Law], Result]] = {
    "traversal": traversal,
    "rrsw": rejection,
    "naive": naive,
    "block": block,
}
"""The rules, by their names in worked cases."""
