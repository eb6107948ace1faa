"""Token Recycling's static tree (method ``tr``): 80 nodes, filled from one table of successors.

Source: Token Recycling (Luo et al., 2025), a baseline of GOOSE. The tree is computed by a rule:
each level has the nodes with the smallest sum of log(1 + rank) along the path. Ranks are counted
from 0, and ties are broken in breadth-first order. The method looks up the last token alone and
prunes nothing.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from draftwood.policies._fill import fill
from draftwood.policies._static import RankPath
from draftwood.protocols import Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder

WIDTH = 8
LEVELS = (8, 21, 25, 15, 8, 3)
NODES = sum(LEVELS)


def _cost(path: RankPath) -> int:
    """Orders as the sum of log(1 + rank) does, exactly."""
    return prod(1 + rank for rank in path)


@lru_cache(maxsize=64)
def template(budget: int = NODES) -> tuple[RankPath, ...]:
    """The nodes with the smallest sums, as the ranks on their paths.

    Of equal sums, the shallower comes first and then the earlier in breadth-first order. A node's
    sum is at least its parent's, so no parent is lost.
    """
    found: list[RankPath] = []
    above: list[RankPath] = [()]
    for size in LEVELS:
        children = [(*path, rank) for path in above for rank in range(WIDTH)]
        above = sorted(sorted(children, key=_cost)[:size])
        found += above
    return tuple(sorted(found, key=lambda path: (_cost(path), len(path), path))[:budget])


@dataclass(frozen=True)
class Recycling(Policy):
    """Fills the static tree; where a node has fewer successors, the nodes below are left out.

    Raises:
        DraftwoodError: a budget outside 0 to 80.
    """

    budget: int = setting(
        NODES,
        "most nodes to draft, root excluded (80 at most)",
        search=(8, 16, 32, 80),
        least=0,
        most=NODES,
    )
    branches: str = setting("adjacency", "name of the source that ranks", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``transition``, or ``plain`` where the root has no successors."""
        builder = TreeBuilder(growth.anchor)
        budget = max(0, min(self.budget, growth.budget))
        yield from fill(builder, template(budget), self.branches, growth.room)
        return builder.build("transition" if builder.drafted else "plain")


PART = Recycling
RECIPES = (
    Recipe(
        "tr",
        "a static tree filled from the adjacency table",
        "Token Recycling",
        drafters={"adjacency": "adjacency"},
        presets={
            "adjacency.bigram": False,
            "adjacency.width": 8,
            "adjacency.min_score": 0.0,  # Token Recycling prunes nothing
        },
    ),
)
