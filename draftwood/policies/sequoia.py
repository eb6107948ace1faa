"""Sequoia's static tree: each node is given by the ranks on its path, and a drafter fills them in.

Source: Sequoia (Chen et al., 2025), a baseline of TALON. Its tree is searched once for a drafter,
from the measured probability that the child of each rank is the accepted one. The search is
``draftwood.lab.theory.sequoia_tree``. This file fills the tree level by level, with one draft
forward for all nodes of a level that have children.

A tree comes from a JSON file of rank paths (``draftwood.policies._static``). Without a file the
tree is the best one for :data:`DEFAULT_ACCEPTANCE`, which is an assumption and no measurement.

A smaller budget selects the nodes most likely to be accepted: those with the largest product of
acceptances along the path; of equal ones the shallower, then the one of smaller ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from draftwood.policies._fill import fill
from draftwood.policies._static import RankPath, SortKey, order, read_paths
from draftwood.protocols import Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder

DEFAULT_ACCEPTANCE = tuple(0.6 / (1 + rank) ** 2 for rank in range(10))
"""A power law in the rank, as Sequoia observes them; its sum is 0.93."""


def likeliest_paths(acceptance: Sequence[float], size: int) -> tuple[RankPath, ...]:
    """The best tree of ``size`` nodes for acceptances that never rise, in :func:`order`.

    Best first: a node's next sibling and its first child are no likelier than itself.
    """
    found: list[RankPath] = []
    heap: list[SortKey] = [order((0,), acceptance)]
    while heap and len(found) < size:
        path = heappop(heap)[-1]
        found.append(path)
        heappush(heap, order((*path, 0), acceptance))
        if path[-1] + 1 < len(acceptance):
            heappush(heap, order((*path[:-1], path[-1] + 1), acceptance))
    return tuple(found)


@dataclass(frozen=True)
class Sequoia(Policy):
    """Fills the static tree; where a node has fewer children, the nodes below are left out.

    Raises:
        DraftwoodError: a negative budget, or a file that holds no tree.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    tree: str = setting(
        "", "JSON file of a searched tree; empty: a built-in one", searched_by="rank_trees"
    )
    source: str = setting("draft", "name of the drafter", source=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        len(self.paths)  # reads the file, so that a wrong one is refused before anything is loaded

    @cached_property
    def paths(self) -> tuple[RankPath, ...]:
        """The tree, likeliest node first; the first n of them are the tree of budget n."""
        if self.tree:
            return read_paths(self.tree)
        return likeliest_paths(DEFAULT_ACCEPTANCE, self.budget)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``sequoia``, or ``plain`` where nothing could be drafted."""
        builder = TreeBuilder(growth.anchor)
        budget = max(0, min(self.budget, growth.budget))
        yield from fill(builder, self.paths[:budget], self.source, growth.room)
        return builder.build("sequoia" if builder.drafted else "plain")


PART = Sequoia
RECIPES = (
    Recipe(
        "sequoia",
        "a static tree searched for a draft model's acceptance by rank",
        "Sequoia (Chen et al. 2025)",
        drafters={"draft": "model"},
    ),
    Recipe(
        "medusa",
        "a static tree of Medusa's heads",
        "Medusa (Cai et al. 2024)",
        drafters={"draft": "medusa"},
    ),
)
