"""Static shapes whose nodes are to be drawn: how they are spelt, cut and laid out.

A node of such a shape has a place among its siblings and no likelihood. So a shape that is too
large is cut breadth first, and of siblings with different subtrees the one with the deepest comes
first, which is where Traversal Verification makes most of it. Knows nothing of tokens.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias

from draftwood.errors import DraftwoodError
from draftwood.shapes.ranks import RankPath, read_paths

Deepest: TypeAlias = Literal["first", "last"]
"""Which of a node's children has the deepest subtree."""

_SPARSE = (
    "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
)
SPARSE = tuple(tuple(map(int, path)) for path in _SPARSE.split())
"""EAGLE's static tree of 25 nodes (Li et al., 2024)."""


def uniform_paths(branching: Sequence[int], most: int) -> tuple[RankPath, ...]:
    """The first ``most`` nodes of a tree with so many children per node, level by level."""
    found: list[RankPath] = []
    level: list[RankPath] = [()]
    for width in branching:
        below = ((*path, rank) for path in level for rank in range(width))
        level = list(islice(below, max(0, most - len(found))))
        found += level
    return tuple(found)


def shape_paths(shape: str, most: int) -> tuple[RankPath, ...]:
    """The rank paths that a shape's text stands for.

    Args:
        shape: children per node by level (``"3x2x1"``), ``"sparse"``, or a JSON file of rank paths.
        most: a uniform tree may be arbitrarily large; no more nodes of it than this.

    Raises:
        DraftwoodError: the text is none of these.
    """
    if shape == "sparse":
        return SPARSE
    if re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
        return uniform_paths([int(width) for width in shape.split("x")], most)
    try:
        return read_paths(shape)
    except DraftwoodError as error:
        raise DraftwoodError(
            f'shape is "{shape}"; give children per level such as "2x2x1", "sparse", or a file of '
            f"rank paths: {error}"
        ) from None


@lru_cache(maxsize=256)
def layout(
    paths: tuple[RankPath, ...], budget: int, deepest: Deepest
) -> tuple[tuple[int, ...], ...]:
    """How many children every node gets, level by level, for a shape cut to ``budget`` nodes.

    An entry of a level belongs to a node of the level above, the root first; the children of these
    nodes, in this order, are the next level's nodes.
    """
    heights: dict[RankPath, int] = {}
    below: dict[RankPath, list[RankPath]] = {(): []}
    for path in sorted(paths, key=len, reverse=True):
        below.setdefault(path, [])
        heights[path] = max((1 + heights[child] for child in below[path]), default=0)
        below.setdefault(path[:-1], []).append(path)
    for siblings in below.values():
        siblings.sort(key=lambda path: (-heights[path], path))
    left = max(0, budget)
    for nodes in _levels(below):
        for path in nodes:
            del below[path][left:]
            left -= len(below[path])
    if deepest == "last":
        for siblings in below.values():
            siblings[:] = siblings[1:] + siblings[:1]
    widths = (tuple(len(below[path]) for path in nodes) for nodes in _levels(below))
    return tuple(level for level in widths if any(level))


def _levels(below: Mapping[RankPath, Sequence[RankPath]]) -> Iterator[list[RankPath]]:
    nodes: list[RankPath] = [()]
    while nodes:
        yield nodes
        nodes = [child for path in nodes for child in below[path]]
