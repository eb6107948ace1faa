"""The accept rules in exact fractions, as literally as can be, and trees to try them on.

A tree is a list of nodes; a node's children are verified in the order of the list. Nothing here
uses the package.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Dist = list[Fraction]
Law = Callable[[tuple[int, ...]], Dist]
V = 3


@dataclass
class Tree:
    """Tokens, parents and what each token was drawn from; node 0 is the root."""

    token: list[int]
    parent: list[int]
    q: list[Dist]

    def children(self, node: int) -> list[int]:
        return [i for i, above in enumerate(self.parent) if above == node and i]

    def path(self, node: int) -> tuple[int, ...]:
        return () if node == 0 else (*self.path(self.parent[node]), self.token[node])


@dataclass
class Result:
    """Where verification ends and what follows, and (for traversal) the order of questions."""

    end: list[Fraction]
    bonus: list[Dist | None]
    visits: list[int]
    asked: list[Fraction]


def normal(row: Dist) -> Dist:
    total = sum(row)
    return [x / total for x in row]


def residual(weight: Fraction, p: Dist, q: Dist) -> Dist:
    return [max(weight * a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]


def traversal(tree: Tree, p: Law) -> Result:
    """Algorithm 3 of the paper: the first leaf, accepted or dropped, until the root is left."""
    n = len(tree.token)
    result = Result([Fraction(0)] * n, [None] * n, [], [Fraction(0)] * n)
    rows = [p(tree.path(node)) for node in range(n)]
    share = [Fraction(1)] * n
    left = [tree.children(node) for node in range(n)]

    def refresh(node: int) -> None:
        for child in left[node]:
            token = tree.token[child]
            share[child] = min(Fraction(1), share[node] * rows[node][token] / tree.q[child][token])
            refresh(child)

    refresh(0)
    reached = Fraction(1)
    while True:
        node = 0
        while left[node]:
            node = left[node][0]
        result.visits.append(node)
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
            share[above] = total / (total + 1 - share[above]) if total else Fraction(0)
        if total:
            rows[above] = normal(rest)
        refresh(above)


def rejection(tree: Tree, p: Law) -> Result:
    """Every sibling in turn against what the earlier ones left, from the root down."""
    n = len(tree.token)
    result = Result([Fraction(0)] * n, [None] * n, [], [])

    def descend(node: int, reached: Fraction) -> None:
        row = p(tree.path(node))
        for child in tree.children(node):
            token = tree.token[child]
            accept = min(Fraction(1), row[token] / tree.q[child][token])
            descend(child, reached * accept)
            reached *= 1 - accept
            if not reached:
                return
            row = normal(residual(Fraction(1), row, tree.q[child]))
        result.end[node] = reached
        result.bonus[node] = row if reached else None

    descend(0, Fraction(1))
    return result


def naive(tree: Tree, p: Law) -> Result:
    """A token from p; if a child carries it, on to that child."""
    n = len(tree.token)
    result = Result([Fraction(0)] * n, [None] * n, [], [])

    def descend(node: int, reached: Fraction) -> None:
        row = list(p(tree.path(node)))
        for child in tree.children(node):
            token = tree.token[child]
            if row[token]:
                descend(child, reached * row[token])
                row[token] = Fraction(0)
        result.end[node] = reached * sum(row)
        result.bonus[node] = normal(row) if result.end[node] else None

    descend(0, Fraction(1))
    return result


def block(tree: Tree, p: Law) -> Result:
    """Block verification of a chain: the longest prefix whose own number lets it through."""
    n = len(tree.token)
    result = Result([Fraction(0)] * n, [None] * n, [], [])
    reach = [Fraction(1)]
    for node in range(1, n):
        row = p(tree.path(node - 1))
        token = tree.token[node]
        reach.append(min(Fraction(1), reach[-1] * row[token] / tree.q[node][token]))
    missed = Fraction(1)
    for node in reversed(range(n)):
        row = p(tree.path(node))
        if node < n - 1:
            rest = residual(reach[node], row, tree.q[node + 1])
            total = sum(rest)
            mine = total / (total + 1 - reach[node]) if total else Fraction(0)
            row = normal(rest) if total else row
        else:
            mine = reach[node]
        mine = Fraction(1) if node == 0 else mine
        result.end[node] = missed * mine
        result.bonus[node] = row if result.end[node] else None
        missed *= 1 - mine
    return result


RULES = {"traversal": traversal, "rrsw": rejection, "naive": naive, "block": block}


def accepted(tree: Tree, result: Result) -> Fraction:
    found = sum(len(tree.path(v)) * end for v, end in enumerate(result.end))
    return Fraction(found)


def output(tree: Tree, result: Result) -> dict[tuple[int, ...], Fraction]:
    found: dict[tuple[int, ...], Fraction] = {}
    for node, row in enumerate(result.bonus):
        for token, share in enumerate(row or []):
            if share:
                key = (*tree.path(node), token)
                found[key] = found.get(key, Fraction(0)) + result.end[node] * share
    return found


# --- laws and drawing -----------------------------------------------------------------------------


def table(seed: int, depth: int) -> dict[tuple[int, ...], Dist]:
    """Rows of small fractions by prefix."""
    rng = random.Random(seed)
    return {
        prefix: normal([Fraction(rng.randint(1, 9)) for _ in range(V)])
        for n in range(depth + 1)
        for prefix in itertools.product(range(V), repeat=n)
    }


def without(row: Dist, tokens: set[int]) -> Dist:
    return normal([Fraction(0) if t in tokens else x for t, x in enumerate(row)])


def one_hot(token: int) -> Dist:
    return [Fraction(int(t == token)) for t in range(V)]


def plant(*nodes: tuple[int, int, Dist]) -> Tree:
    """A tree of (token, parent, Q) triples below the root."""
    root = (-1, -1, [Fraction(0)] * V)
    token, parent, q = zip(root, *nodes, strict=True)
    return Tree(list(token), list(parent), list(q))


# A shape: children in order, each (kind, excluded tokens or the token, its own shape).
Shape = list[tuple[str, int | None, Any]]


def draw(shape: Shape, q: Law) -> Iterator[tuple[Tree, Fraction]]:
    """All trees of a shape with their probabilities, children before grandchildren."""

    def fill(
        tree: Tree, weight: Fraction, waiting: list[tuple[int, Shape]]
    ) -> Iterator[tuple[Tree, Fraction]]:
        if not waiting:
            yield tree, weight
            return
        (node, places), rest = waiting[0], waiting[1:]
        yield from siblings(tree, weight, node, places, rest, set())

    def siblings(
        tree: Tree,
        weight: Fraction,
        node: int,
        places: Shape,
        rest: list[tuple[int, Shape]],
        gone: set[int],
    ) -> Iterator[tuple[Tree, Fraction]]:
        if not places:
            yield from fill(tree, weight, rest)
            return
        (kind, token, below), *others = places
        row = q(tree.path(node))
        if kind == "without":
            row = without(row, {token} if token is not None else set())
            row = without(row, gone)
        elif kind == "fixed":
            assert token is not None
            row = one_hot(token)
        elif kind == "top":
            best = max((x, -t) for t, x in enumerate(row) if t not in gone)
            row = one_hot(-best[1])
        for chosen, share in enumerate(row):
            if share:
                grown = Tree([*tree.token, chosen], [*tree.parent, node], [*tree.q, row])
                index = len(tree.token)
                yield from siblings(
                    grown, weight * share, node, others, [*rest, (index, below)], gone | {chosen}
                )

    yield from fill(plant(), Fraction(1), [(0, shape)])


SHAPES: dict[str, tuple[str, Shape, int]] = {
    "forked": (
        "root:[1:[leaf],2:leaf] all sampled w/o replacement",
        [("without", None, [("without", None, [])]), ("without", None, [])],
        2,
    ),
    "chain": ("chain of 2", [("without", None, [("without", None, [])])], 2),
    "repeating": (
        "two children drawn with replacement, Q=Ms",
        [("iid", None, []), ("iid", None, [])],
        1,
    ),
    "best": (
        "binary depth 2, the two most probable tokens of Ms, one-hot Q",
        [("top", None, [("top", None, [])] * 2)] * 2,
        2,
    ),
    "mixed": (
        "root:[sampled from Ms minus token 1, with one sampled child; "
        "then token 1 (one-hot) with one-hot child 0]",
        [("without", 1, [("without", None, [])]), ("fixed", 1, [("fixed", 0, [])])],
        2,
    ),
}


def trees(q: Law) -> dict[str, Tree]:
    """Trees as they may be drawn from q, some of their nodes not drawn at all."""
    root, after = q(()), q((0,))
    return {
        "forked": plant(
            (0, 0, root),
            (2, 1, after),
            (1, 1, without(after, {2})),
            (1, 0, without(root, {0})),
            (0, 4, q((1,))),
        ),
        "chain": plant((0, 0, root), (2, 1, after), (1, 2, q((0, 2)))),
        "repeating": plant((2, 0, root), (2, 0, root), (0, 0, root)),
        "best": plant((0, 0, one_hot(0)), (1, 1, one_hot(1)), (2, 0, one_hot(2))),
        "mixed": plant(
            (2, 0, without(root, {1})), (0, 1, q((2,))), (1, 0, one_hot(1)), (0, 3, one_hot(0))
        ),
    }
