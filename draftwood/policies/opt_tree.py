"""OPT-Tree: the tree of n nodes with the largest expected accepted length, level by level.

With a datastore as its drafter and without a least gain this is REST's tree (method ``rest``).

Source: OPT-Tree (Wang et al., 2025), a baseline of TALON. The expected number of accepted tokens E
is the sum of the nodes' path probabilities, so the best tree of n nodes is the n likeliest
candidates. Drafting goes on while a further level adds more than ``delta`` to E.

The paper forwards the n likeliest nodes of the frontier. Here a node is left out if it is not among
the n likeliest candidates so far: its descendants are no likelier and come later. The tree, E and
the number of draft forwards are the same, and the forwards are smaller. The last level counts,
although it raised E too little, because its forward is spent. ``max_depth`` stops the loop with a
drafter whose next token is certain.
"""

from dataclasses import dataclass

import numpy as np

from draftwood.policies._frontier import (
    certain_children,
    certain_frontier,
    children,
    join,
    likeliest,
    promote,
    transplant,
)
from draftwood.protocols import Candidates, Expand, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class OptTree(Policy):
    """Drafts the ``budget`` likeliest nodes, and stops when another level adds too little.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(
        59, "most nodes to draft, root excluded (n)", search=(8, 16, 32, 59), least=0
    )
    delta: float = setting(
        0.5,
        "expected tokens that a level must add for another to follow",
        search=(0.05, 0.1, 0.25, 0.5),
        least=0,
    )
    max_depth: int = setting(32, "most draft forwards in a step", least=1)
    source: str = setting("draft", "name of the drafter", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``opt_tree``, or ``plain`` where nothing could be drafted."""
        expanded = TreeBuilder(growth.anchor)
        n = min(self.budget, growth.budget)
        frontier, best, expected = certain_frontier(), certain_children(), 0.0
        depth, deepest = 0, min(self.max_depth, growth.room)
        while frontier.nodes and n > 0 and depth < deepest:
            answer: Candidates = yield Expand(self.source, expanded, frontier.nodes, n)
            pool = join([best, children(frontier, answer)])
            chosen = likeliest(pool.path, n)
            fresh = pool.take(chosen[chosen >= len(best)])
            best = pool.take(chosen)
            before, expected = expected, float(np.exp(best.path).sum())  # E
            if expected - before <= self.delta:
                break
            frontier = promote(expanded, fresh, self.source)
            depth += 1
        tree = transplant(expanded, best, self.source)
        return tree.build("opt_tree" if tree.drafted else "plain")


PART = OptTree
RECIPES = (
    Recipe(
        "opt-tree",
        "a draft model's likeliest nodes, as deep as levels add expected tokens",
        "OPT-Tree (Wang et al. 2025)",
        drafters={"draft": "model"},
    ),
    # The n nodes with the largest products of shares are those with the largest counts.
    Recipe(
        "rest",
        "the most frequent continuations in given files",
        "REST (He et al. 2024)",
        drafters={"datastore": "datastore"},
        presets={"source": "datastore", "budget": 64, "delta": 0.0, "max_depth": 10},
        search={"delta": ()},
    ),
)
