"""Counts of drafted nodes that were offered and accepted: by depth, by source, by depth and rank.

The counts by rank are the funnel of the paper on Sequoia (Chen et al. 2024, section 3.1), kept
apart by depth: the verifier tests a node's children only once it has accepted the node, so a
child is *offered* if its parent is the root or was accepted, and its *rank* is its place among its
siblings, from 1, in the order of nodes. Nothing is known of children that are not offered.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from draftwood.tree import ROOT

if TYPE_CHECKING:
    from draftwood.engine.stats import StepStats

K = TypeVar("K", bound=Hashable)
OfferedAndAccepted: TypeAlias = tuple[int, int]
"""Offered, and accepted of these."""


@dataclass(frozen=True)
class AcceptanceCounts:
    """Counts of some steps, each mapping in ascending order; empty if nothing was drafted.

    Attributes:
        by_depth: steps whose tree was so deep, and whose accepted path was.
        by_source: nodes of a drafter, and the accepted ones.
        by_rank: offered nodes of a depth and rank, and the accepted ones.
    """

    by_depth: Mapping[int, OfferedAndAccepted] = field(default_factory=dict)
    by_source: Mapping[str, OfferedAndAccepted] = field(default_factory=dict)
    by_rank: Mapping[tuple[int, int], OfferedAndAccepted] = field(default_factory=dict)


def acceptance_of(steps: Iterable["StepStats"]) -> AcceptanceCounts:
    """The counts of some steps."""
    return merged(_of_step(step) for step in steps if step.tree.drafted)


def merged(parts: Iterable[AcceptanceCounts]) -> AcceptanceCounts:
    """The counts of all parts together."""
    every = list(parts)
    return AcceptanceCounts(
        _sum(part.by_depth for part in every),
        _sum(part.by_source for part in every),
        _sum(part.by_rank for part in every),
    )


def _of_step(step: "StepStats") -> AcceptanceCounts:
    tree, path = step.tree, step.path
    offered: Counter[tuple[int, int]] = Counter()
    accepted: Counter[tuple[int, int]] = Counter()
    for depth, parent in enumerate((ROOT, *path), start=1):
        children = np.flatnonzero(tree.parents == parent).tolist()
        offered.update((depth, rank) for rank in range(1, len(children) + 1))
        if depth <= len(path):
            accepted[depth, children.index(path[depth - 1]) + 1] += 1
    return AcceptanceCounts(
        {depth: (1, int(depth <= len(path))) for depth in range(1, tree.depth + 1)},
        _paired(Counter(tree.sources[1:]), Counter(tree.sources[node] for node in path)),
        _paired(offered, accepted),
    )


def _sum(parts: Iterable[Mapping[K, OfferedAndAccepted]]) -> dict[K, OfferedAndAccepted]:
    offered: Counter[K] = Counter()
    accepted: Counter[K] = Counter()
    for part in parts:
        for key, (of, hits) in part.items():
            offered[key] += of
            accepted[key] += hits
    return _paired(offered, accepted)


def _paired(offered: Mapping[K, int], accepted: Mapping[K, int]) -> dict[K, OfferedAndAccepted]:
    keys: list[Any] = sorted(offered)
    return {key: (offered[key], accepted[key]) for key in keys}
