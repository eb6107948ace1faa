"""Token Recycling's static tree (method ``tr``): 80 nodes, filled from one table of successors.

Source: Token Recycling (Luo et al., 2025), a baseline of GOOSE. The tree is computed by a rule:
each level has the nodes with the smallest sum of log(1 + rank) along the path. Ranks are counted
from 0, and ties are broken in breadth-first order. The method looks up the last token alone and
prunes nothing.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod

from draftwood.protocols import Candidates, Expand, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import ROOT, TreeBuilder

WIDTH = 8
LEVELS = (8, 21, 25, 15, 8, 3)
NODES = sum(LEVELS)

RankPath = tuple[int, ...]


def _cost(path: RankPath) -> int:
    """Orders as the sum of log(1 + rank) does, exactly."""
    return prod(1 + rank for rank in path)


@lru_cache(maxsize=64)
def template(budget: int = NODES) -> tuple[tuple[RankPath, ...], ...]:
    """The tree's levels, each node as the ranks on its path, in breadth-first order.

    A smaller budget keeps the nodes with the smallest sums; of equal ones, the shallower and then
    the earlier in breadth-first order. A node's sum is at least its parent's, so no parent is lost.
    """
    levels: list[list[RankPath]] = []
    above: list[RankPath] = [()]
    for size in LEVELS:
        children = [(*path, rank) for path in above for rank in range(WIDTH)]
        above = sorted(sorted(children, key=_cost)[:size])
        levels.append(above)
    kept = sorted((path for level in levels for path in level), key=lambda p: (_cost(p), len(p), p))
    chosen = set(kept[:budget])
    trimmed = (tuple(path for path in level if path in chosen) for level in levels)
    return tuple(level for level in trimmed if level)


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
    branches: str = setting("adjacency", "name of the source that ranks", source=True)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``transition``, or ``plain`` where the root has no successors."""
        builder = TreeBuilder(growth.anchor)
        placed: dict[RankPath, int] = {(): ROOT}
        for level in template(max(0, min(self.budget, growth.budget)))[: max(0, growth.room)]:
            above = list(dict.fromkeys(path[:-1] for path in level if path[:-1] in placed))
            if not above:
                break
            nodes = [placed[path] for path in above]
            answer: Candidates = yield Expand(self.branches, builder, nodes, WIDTH)
            row = dict(zip(above, count()))
            tokens, logq = answer.tokens.tolist(), answer.logq.tolist()
            for path in level:
                i = row.get(path[:-1])
                if i is not None and tokens[i][path[-1]] >= 0:
                    placed[path] = builder.add(
                        placed[path[:-1]],
                        tokens[i][path[-1]],
                        self.branches,
                        logq=logq[i][path[-1]],
                    )
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
