"""Laws in exact fractions, and trees that are drawn from them. Nothing here uses the package."""

import itertools
import random
from collections.abc import Iterator, Set
from fractions import Fraction
from typing import Any, TypeAlias

from tests.factories.literal_rules import Dist, Law, Path, Tree, normal

V = 3

Shape: TypeAlias = list[tuple[str, int | None, Any]]
"""Children in order of drawing: the kind of draw, the given or excluded token, and own children."""


def table(seed: int, depth: int) -> dict[Path, Dist]:
    """Rows of small fractions by prefix."""
    rng = random.Random(seed)
    return {
        prefix: normal([Fraction(rng.randint(1, 9)) for _ in range(V)])
        for n in range(depth + 1)
        for prefix in itertools.product(range(V), repeat=n)
    }


def without(row: Dist, tokens: Set[int | None]) -> Dist:
    return normal([Fraction(0) if t in tokens else x for t, x in enumerate(row)])


def one_hot(token: int) -> Dist:
    return [Fraction(int(t == token)) for t in range(V)]


def tree_of(*nodes: tuple[int, int, Dist]) -> Tree:
    """A tree of (token, parent, Q) triples below the root."""
    token, parent, q = zip((-1, -1, []), *nodes, strict=True)
    return Tree(list(token), list(parent), list(q))


def draw(shape: Shape, q: Law) -> Iterator[tuple[Tree, Fraction]]:
    """All trees of a shape with their probabilities, children before grandchildren."""

    def fill(
        tree: Tree, weight: Fraction, waiting: list[tuple[int, Shape, frozenset[int]]]
    ) -> Iterator[tuple[Tree, Fraction]]:
        if not waiting:
            yield tree, weight
            return
        (node, places, gone), *rest = waiting
        if not places:
            yield from fill(tree, weight, rest)
            return
        (kind, token, below), *others = places
        row = q(tree.path(node))
        if kind == "without":
            row = without(row, {token, *gone})
        elif kind == "fixed" and token is not None:
            row = one_hot(token)
        elif kind == "top":
            row = one_hot(max(range(V), key=lambda t: (t not in gone, row[t], -t)))
        for chosen, share in enumerate(row):
            if share:
                grown = Tree([*tree.token, chosen], [*tree.parent, node], [*tree.q, row])
                siblings = (node, others, gone | {chosen})
                children = (len(tree.token), below, frozenset[int]())
                yield from fill(grown, weight * share, [siblings, *rest, children])

    yield from fill(tree_of(), Fraction(1), [(0, shape, frozenset())])


DRAWN: Shape = [("without", None, [])]
SHAPES: dict[str, tuple[str, Shape, int]] = {
    "forked": (
        "root:[1:[leaf],2:leaf] all sampled w/o replacement",
        [("without", None, DRAWN), *DRAWN],
        2,
    ),
    "chain": ("chain of 2", [("without", None, DRAWN)], 2),
    "repeating": ("two children drawn with replacement, Q=Ms", [("iid", None, [])] * 2, 1),
    "best": (
        "binary depth 2, the two most probable tokens of Ms, one-hot Q",
        [("top", None, [("top", None, [])] * 2)] * 2,
        2,
    ),
    "mixed": (
        "root:[sampled from Ms minus token 1, with one sampled child; "
        "then token 1 (one-hot) with one-hot child 0]",
        [("without", 1, DRAWN), ("fixed", 1, [("fixed", 0, [])])],
        2,
    ),
}
"""Description, shape and depth of the ensembles."""


def trees(q: Law) -> dict[str, Tree]:
    """Trees as they may be drawn from q, some of their nodes not drawn at all."""
    root, after = q(()), q((0,))
    return {
        "forked": tree_of(
            (0, 0, root),
            (2, 1, after),
            (1, 1, without(after, {2})),
            (1, 0, without(root, {0})),
            (0, 4, q((1,))),
        ),
        "chain": tree_of((0, 0, root), (2, 1, after), (1, 2, q((0, 2)))),
        "repeating": tree_of((2, 0, root), (2, 0, root), (0, 0, root)),
        "best": tree_of((0, 0, one_hot(0)), (1, 1, one_hot(1)), (2, 0, one_hot(2))),
        "mixed": tree_of(
            (2, 0, without(root, {1})), (0, 1, q((2,))), (1, 0, one_hot(1)), (0, 3, one_hot(0))
        ),
    }
