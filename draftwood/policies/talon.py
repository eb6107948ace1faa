"""TALON: a tree that grows until its budget is spent, each level gated by its own best path.

Source: TALON, Algorithm 2 and Section 5.2 (Eq. 3 to 5). Level 0 takes the top K tokens whatever
their probabilities. At every deeper level the candidates are all children of the frontier, and
those within a factor mu of the likeliest path stay. Details that the paper leaves open, and
deviations:

* The paper's candidates are whole vocabularies. Asking each parent for as many top tokens as there
  is budget left gives the same tree: a token behind these is less likely than all of them, so it
  would never be among the best that still fit.
* ``max_depth`` stops the loop with a drafter whose next token is certain, which would spend the
  budget one draft forward at a time.
* ``robust`` is how many levels take their top K unconditionally (Section 6.4.1); 1 in the paper.
* A copied path (``chain``) and drawn children are not in the paper
  (``draftwood.policies._sampling.TopOrDrawn``). The gate decides the number of drawn children. P is
  the product of q over the tokens drawn on a path. A node with an unlikely draw has no child that
  passes the gate and is a leaf: a draw decides whether its node is expanded, not whether it stays.

The paper's tree always tries to spend its budget, whatever a node costs.
"""

import math
from dataclasses import dataclass

from draftwood.policies._frontier import certain_frontier, children
from draftwood.policies._sampling import TopOrDrawn, draw_as_many
from draftwood.protocols import Candidates, Grower, Growth, Recipe, setting


@dataclass(frozen=True)
class Talon(TopOrDrawn):
    """The policy of TALON; ``budget`` excludes the root, so the paper's N = 60 is 59 here."""

    mu: float = setting(
        0.03,
        "least path probability, relative to the level's best",
        search=(0.01, 0.03, 0.05, 0.1, 0.2),
        above=0,
        most=1,
    )
    top_k: int = setting(10, "nodes of a level that is not gated (K)", least=1)
    robust: int = setting(1, "levels from the root that are not gated", least=0)
    max_depth: int = setting(32, "most draft forwards in a step", least=1)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree by Algorithm 2.

        Routes: ``talon``, or ``plain`` where nothing could be drafted.
        """
        budget = min(self.budget, growth.budget)
        deepest = min(self.max_depth, growth.room)
        drawing = self.drawing(growth)
        tree = yield from self.copy(growth, budget)  # line 1
        shared = 1 if tree.drafted else 0  # a level meets the copied path in one node at most
        parents, d = certain_frontier(), 0
        while parents.nodes and tree.drafted < budget and d < deepest:  # line 4
            left = budget - tree.drafted + shared
            k = min(self.top_k, left) if d < self.robust else left
            answer: Candidates = yield drawing.likeliest(tree, parents, k)
            # Lines 7 to 11 (Eq. 3), 15 (Eq. 5), 22 and 23. The best that fit are taken before the
            # gate and not after it: what passes it comes first either way.
            pool = children(parents, answer).best_first(k)
            if d >= self.robust and len(pool):
                anchor = pool.path[0]  # line 18
                pool = pool.take(pool.path >= anchor + math.log(self.mu))  # line 19, Eq. 4
            parents = yield from draw_as_many(  # lines 24 and 25
                tree, parents, pool, drawing, self.last, budget
            )
            d += 1
        return tree.build("talon" if tree.drafted else "plain")


PART = Talon
RECIPES = (
    Recipe(
        "talon",
        "a draft model's tree that spends its budget where the model is confident",
        "TALON (confidence-gated trees under a budget)",
        drafters={"draft": "model", "context": "context"},
    ),
    Recipe(
        "traversal-talon",
        "a sampled tree that spends its budget where the model is confident",
        "Traversal Verification, with TALON's gate",
        drafters={"draft": "model"},
        verifier="traversal",
        presets={"children": "drawn"},
        search={"budget": (), "mu": ()},
    ),
)
