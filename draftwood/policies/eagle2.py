"""EAGLE-2's tree of fixed width and depth, cut to the likeliest nodes.

Methods: ``eagle2``, ``eagle3``, ``mtp``.

Source: EAGLE-2 (Li et al., 2024), as TALON's Algorithm 1 states it; a baseline of TALON. Every
level expands K parents into K x K candidates, the likeliest K of which are the next parents. At
the end the likeliest candidates of all levels are the tree.

TALON's Algorithm 1 is imprecise: its line 13 keeps only the parents of each level for the final
choice. Here all candidates of each level stay, as in its Figure 1 and in EAGLE-2. ``levels`` is the
number of draft forwards, the root's included. Of equally likely candidates the first one is chosen,
so that parents come before their children.
"""

from dataclasses import dataclass

from draftwood.policies._frontier import (
    certain_children,
    certain_frontier,
    children,
    join,
    promote,
    transplant,
)
from draftwood.protocols import Candidates, Expand, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Eagle2(Policy):
    """Expands to a fixed depth, then keeps the ``budget`` likeliest (the paper's 60 is 59 here).

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    top_k: int = setting(
        10, "parents of a level, and children of each parent (K)", search=(4, 10), least=1
    )
    levels: int = setting(9, "draft forwards, the root's included", search=(3, 6, 9), least=1)
    source: str = setting("draft", "name of the drafter", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``eagle2``, or ``plain`` where nothing could be drafted."""
        expanded = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        pool = [certain_children()]
        parents, d = certain_frontier(), 0
        while parents.nodes and budget > 0 and d < min(self.levels, growth.room):
            # No more than the budget's first children of a node can be in the tree.
            k = min(self.top_k, budget)
            answer: Candidates = yield Expand(self.source, expanded, parents.nodes, k)
            level = children(parents, answer)
            pool.append(level)
            parents = promote(expanded, level.likeliest(self.top_k), self.source)
            d += 1
        tree = transplant(expanded, join(pool).likeliest(budget), self.source)
        return tree.build("eagle2" if tree.drafted else "plain")


PART = Eagle2
RECIPES = (
    Recipe(
        "eagle2",
        "an EAGLE head's tree of fixed width and depth, cut to the likeliest nodes",
        "EAGLE-2 (Li et al. 2024)",
        drafters={"draft": "eagle3"},  # which reads EAGLE-1's heads as well
        presets={"levels": 6},
    ),
    Recipe(
        "eagle3",
        "an EAGLE-3 head's tree of fixed width and depth, cut to the likeliest nodes",
        "EAGLE-3 (Li et al. 2025), with EAGLE-2's tree",
        drafters={"draft": "eagle3"},
    ),
    Recipe(
        "mtp",
        "a small tree of the target's own multi-token-prediction layers",
        "DeepSeek-V3 (DeepSeek-AI 2024), with EAGLE-2's tree",
        drafters={"draft": "mtp"},
        # Most layers were trained to predict one token: few are accepted at greater depths.
        presets={"budget": 12, "top_k": 4, "levels": 3},
        search={"budget": (4, 12, 24), "top_k": (1, 4), "levels": (1, 3, 5)},
    ),
)
