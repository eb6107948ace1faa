"""Static trees as lists of rank paths, and the JSON files that hold them.

A rank path names a node by the sibling rank of each node on its path: ``(0, 2)`` is the third child
of the root's first child. A file is an object with ``acceptance``, the probability that the child
of each rank is the accepted one, and ``paths``, a list of rank paths such as ``[0]``, ``[0, 0]``,
``[1]`` in any order, each with its parent. Further entries (model, date) are ignored. Knows nothing
of tokens and of how a node of some rank is found.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from math import prod
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from draftwood.errors import DraftwoodError
from draftwood.files import Count, Range, decode, read_json

RankPath: TypeAlias = tuple[int, ...]
SortKey: TypeAlias = tuple[float, int, RankPath]


def order(path: RankPath, acceptance: Sequence[float]) -> SortKey:
    """Sorts rank paths by the product of acceptances, largest first, and parents before children.

    The factors are taken in order of rank, so that equal products are equal numbers.
    """
    return (-prod(acceptance[rank] for rank in sorted(path)), len(path), path)


def likeliest_paths(
    acceptance: Sequence[float], size: int, deepest: int | None = None
) -> tuple[RankPath, ...]:
    """The best tree of ``size`` nodes for acceptances that never rise, in :func:`order`.

    Best first: a node's next sibling and its first child are no likelier than itself. No node is
    deeper than ``deepest``, if that is given.
    """
    found: list[RankPath] = []
    heap: list[SortKey] = [order((0,), acceptance)]
    while heap and len(found) < size:
        path = heappop(heap)[-1]
        found.append(path)
        if deepest is None or len(path) < deepest:
            heappush(heap, order((*path, 0), acceptance))
        if path[-1] + 1 < len(acceptance):
            heappush(heap, order((*path[:-1], path[-1] + 1), acceptance))
    return tuple(found)


@dataclass(frozen=True)
class TreeFile:
    """The content of a tree file.

    Attributes:
        acceptance: probability by rank that the child is the accepted one.
        paths: each with its parent, in any order.

    Raises:
        DraftwoodError: one of them is empty, a rank has no acceptance, or a path is listed twice or
            without its parent.
    """

    acceptance: tuple[Annotated[float, Range(0, 1)], ...]
    paths: tuple[tuple[Count, ...], ...]

    def __post_init__(self) -> None:
        if not self.acceptance or not self.paths:
            raise DraftwoodError('"acceptance" and "paths" need one entry or more')
        ranks, known = len(self.acceptance), Counter(self.paths)
        for path, times in known.items():
            if not path or max(path) >= ranks:
                raise DraftwoodError(
                    f"path {list(path)} must hold ranks from 0 to {ranks - 1}, those that "
                    '"acceptance" has'
                )
            if times > 1:
                raise DraftwoodError(f"path {list(path)} is listed twice")
            if len(path) > 1 and path[:-1] not in known:
                raise DraftwoodError(f"path {list(path)} is listed, but not its parent")


def read_paths(file: str) -> tuple[RankPath, ...]:
    """The rank paths of a tree file, in :func:`order`.

    Raises:
        DraftwoodError: the file cannot be read, or does not hold a tree.
    """
    try:
        found = decode(TreeFile, read_json(Path(file)))
    except DraftwoodError as error:
        raise DraftwoodError(f"the tree file {file} cannot be used: {error}") from None
    return tuple(sorted(found.paths, key=lambda path: order(path, found.acceptance)))


Deepest: TypeAlias = Literal["first", "last"]
"""The child, first or last, that has the deepest subtree."""

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
    """Number of children of every node, level by level, for a shape cut to ``budget`` nodes.

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
