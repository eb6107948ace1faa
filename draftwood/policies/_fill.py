"""Fills a static tree of rank paths from a drafter, with one query for all nodes of a level."""

from collections.abc import Generator
from functools import lru_cache
from typing import Any

from draftwood.policies._static import RankPath
from draftwood.protocols import Candidates, Expand
from draftwood.tree import ROOT, TreeBuilder


@lru_cache(maxsize=256)
def by_level(paths: tuple[RankPath, ...]) -> tuple[tuple[RankPath, ...], ...]:
    """The levels from the root's children down, each parent by parent and best rank first."""
    depths = range(1, 1 + max(map(len, paths), default=0))
    return tuple(tuple(sorted(path for path in paths if len(path) == d)) for d in depths)


def fill(
    builder: TreeBuilder, paths: tuple[RankPath, ...], source: str, room: int
) -> Generator[Expand, Any, None]:
    """Make nodes of the children of these ranks.

    Where a node has fewer children, the nodes below the missing ones are left out.

    Args:
        builder: the growing tree, which holds the root alone.
        paths: each with its parent.
        source: name of the drafter that ranks children.
        room: deepest useful node.
    """
    placed: dict[RankPath, int] = {(): ROOT}
    for level in by_level(paths)[: max(0, room)]:
        nodes = {path[:-1]: placed[path[:-1]] for path in level if path[:-1] in placed}
        if not nodes:
            return
        width = 1 + max(path[-1] for path in level)
        answer: Candidates = yield Expand(source, builder, list(nodes.values()), width)
        tokens = dict(zip(nodes, answer.tokens.tolist(), strict=True))
        logq = dict(zip(nodes, answer.logq.tolist(), strict=True))
        for *parents, rank in level:
            above = tuple(parents)
            if above in nodes and rank < len(tokens[above]) and tokens[above][rank] >= 0:
                placed[*above, rank] = builder.add(
                    nodes[above], tokens[above][rank], source, logq=logq[above][rank]
                )
