"""Static trees as lists of rank paths, and the JSON files that hold them.

A rank path names a node by the sibling rank of each node on its path: ``(0, 2)`` is the third child
of the root's first child. A file is an object with ``acceptance``, the probability that the child
of each rank is the accepted one, and ``paths``, a list of rank paths such as ``[0]``, ``[0, 0]``,
``[1]`` in any order, each with its parent. Further entries (model, date) are ignored. Knows nothing
of tokens and of how a node of some rank is found.
"""

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from draftwood.errors import DraftwoodError

RankPath: TypeAlias = tuple[int, ...]
SortKey: TypeAlias = tuple[float, int, RankPath]


def order(path: RankPath, acceptance: Sequence[float]) -> SortKey:
    """Sorts rank paths by the product of acceptances, largest first, and parents before children.

    The factors are taken in order of rank, so that equal products are equal numbers.
    """
    return (-prod(acceptance[rank] for rank in sorted(path)), len(path), path)


def read_paths(file: str) -> tuple[RankPath, ...]:
    """The rank paths of a tree file, in :func:`order`.

    Raises:
        DraftwoodError: the file cannot be read, or does not hold a tree.
    """
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"the tree file {file} cannot be read: {error}") from None
    if not isinstance(document, dict) or not {"acceptance", "paths"} <= document.keys():
        raise DraftwoodError(
            f'the tree file {file} lacks "acceptance" or "paths": it must be an object with both'
        )
    acceptance, paths = document["acceptance"], document["paths"]
    try:
        _check_acceptance(acceptance)
        _check_paths(paths, len(acceptance))
    except DraftwoodError as error:
        raise DraftwoodError(f"the tree file {file}: {error}") from None
    return tuple(sorted((tuple(path) for path in paths), key=lambda p: order(p, acceptance)))


def _check_acceptance(acceptance: Any) -> None:
    if not isinstance(acceptance, list) or not acceptance:
        raise DraftwoodError('"acceptance" must be a list of at least one probability')
    if not all(type(p) in {int, float} and 0.0 <= p <= 1.0 for p in acceptance):
        raise DraftwoodError('"acceptance" must hold numbers in [0, 1] only')


def _check_paths(paths: Any, ranks: int) -> None:
    if not isinstance(paths, list) or not paths:
        raise DraftwoodError('"paths" must be a list of at least one rank path')
    for path in paths:
        if not isinstance(path, list) or not path:
            raise DraftwoodError(f"path {path!r} must be a list of at least one rank")
        if not all(type(rank) is int and 0 <= rank < ranks for rank in path):
            raise DraftwoodError(
                f'path {path} must hold ranks from 0 to {ranks - 1}, those that "acceptance" has'
            )
    known = {tuple(path) for path in paths}
    if len(known) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise DraftwoodError(f"path {twice} is listed twice")
    for path in paths:
        if len(path) > 1 and tuple(path[:-1]) not in known:
            raise DraftwoodError(f"path {path} is listed, but its parent {path[:-1]} is not")
