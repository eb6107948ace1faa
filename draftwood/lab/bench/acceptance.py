"""How often drafted nodes were accepted: plain counts by depth, by source, and by depth and rank.

Counted from the trees and accepted paths of steps, outside the clock; counts of several answers
add up with :func:`merged`. Knows nothing of prompts and rates.

The counts by rank are the funnel of the paper on Sequoia (Chen et al. 2024, section 3.1), kept
apart by depth: the verifier looks at a node's children only once it has accepted the node, so a
child is *offered* if its parent is the root or was accepted, and its *rank* is its place among its
siblings, from 1, in the order of nodes. Of children that are not offered nothing can be said.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from draftwood.engine.stats import StepStats
from draftwood.tree import ROOT


@dataclass(frozen=True)
class DepthCount:
    """Steps whose tree was so deep (``offered``), and whose accepted path was (``reached``)."""

    depth: int
    offered: int
    reached: int


@dataclass(frozen=True)
class SourceCount:
    """Nodes that one drafter offered, and those of them that were accepted."""

    source: str
    drafted: int
    accepted: int


@dataclass(frozen=True)
class RankCount:
    """Offered nodes of one depth and rank, and those of them that were accepted."""

    depth: int
    rank: int
    offered: int
    accepted: int


@dataclass(frozen=True)
class Acceptance:
    """Counts of some steps, each tuple ascending in what it counts by; nothing drafted: empty."""

    by_depth: tuple[DepthCount, ...] = ()
    by_source: tuple[SourceCount, ...] = ()
    by_rank: tuple[RankCount, ...] = ()


def acceptance_of(steps: Iterable[StepStats]) -> Acceptance:
    """The counts of some steps."""
    counts = _Counts()
    for step in steps:
        counts.add(step)
    return counts.frozen()


def merged(parts: Iterable[Acceptance]) -> Acceptance:
    """The counts of all parts together."""
    counts = _Counts()
    for part in parts:
        counts.merge(part)
    return counts.frozen()


class _Counts:
    """Sums that grow."""

    def __init__(self) -> None:
        self.deep: Counter[int] = Counter()
        self.reached: Counter[int] = Counter()
        self.drafted: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.offered: Counter[tuple[int, int]] = Counter()
        self.accepted: Counter[tuple[int, int]] = Counter()

    def add(self, step: StepStats) -> None:
        tree, path = step.tree, step.path
        if not tree.drafted:
            return
        self.deep.update(range(1, tree.depth + 1))
        self.reached.update(range(1, len(path) + 1))
        self.drafted.update(tree.sources[1:])
        self.kept.update(tree.sources[node] for node in path)
        for depth, parent in enumerate((ROOT, *path), start=1):
            children = np.flatnonzero(tree.parents == parent).tolist()
            self.offered.update((depth, rank) for rank in range(1, len(children) + 1))
            if depth <= len(path):
                self.accepted[depth, children.index(path[depth - 1]) + 1] += 1

    def merge(self, part: Acceptance) -> None:
        for depth in part.by_depth:
            self.deep[depth.depth] += depth.offered
            self.reached[depth.depth] += depth.reached
        for source in part.by_source:
            self.drafted[source.source] += source.drafted
            self.kept[source.source] += source.accepted
        for rank in part.by_rank:
            self.offered[rank.depth, rank.rank] += rank.offered
            self.accepted[rank.depth, rank.rank] += rank.accepted

    def frozen(self) -> Acceptance:
        return Acceptance(
            tuple(DepthCount(d, n, self.reached[d]) for d, n in sorted(self.deep.items())),
            tuple(SourceCount(s, n, self.kept[s]) for s, n in sorted(self.drafted.items())),
            tuple(RankCount(*k, n, self.accepted[k]) for k, n in sorted(self.offered.items())),
        )
