"""TALON with its children drawn instead of taken from the top, for temperatures above 0.

Source: TALON, Algorithm 2 and Section 5.2 (Eq. 3 to 5), whose drafts are deterministic; how its
gate carries over to a sampled tree is not in the paper. It knows its source by name only.

Whether a drawn token stays must not depend on which token it is. So where
``draftwood.policies.talon`` adds the nodes that pass its gate, this policy counts them parent by
parent, before anything of their level is drawn, and draws as many:

* Level 0 draws as many children as the drafter has tokens, K at most, whatever their probabilities.
* A deeper level looks at all children of the frontier, with m the largest path probability among
  them. A parent gets as many children as it has with P >= mu * m; where that exceeds what is left
  of the budget, the best of the level are counted. Which of them are drawn is up to q.
* P is the product of q over the tokens drawn on a path. A node whose draw was unlikely has no
  child that passes, so it stays a leaf: a draw decides whether its node is expanded, never whether
  it is kept.
* ``last="top"`` keeps each parent's likeliest child and draws the others.
* Looking up the likeliest children and drawing are two questions about the rows of one draft
  forward.
* In a greedy step the tree is TALON's own. There is no copied path beside the tree.

The batch's price is not looked at: the paper's tree always tries to spend its budget.
"""

import math
from dataclasses import dataclass
from typing import Literal

from draftwood.policies._frontier import children, root_frontier
from draftwood.policies._sampling import (
    draw_as_many,
    drawing_for,
    drawn_kinds,
)
from draftwood.protocols import Candidates, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True)
class SampledTalon(Policy):
    """Draws as many children of a node as TALON would take.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", least=0)
    mu: float = setting(
        0.03, "least path probability, relative to the level's best", above=0, most=1
    )
    top_k: int = setting(10, "nodes of an ungated level (K)", least=1)
    robust: int = setting(1, "how many levels from the root are ungated", least=0)
    max_depth: int = setting(32, "most draft forwards in a step", least=1)
    replacement: bool = setting(False, "draw siblings independently, so that they may repeat")
    last: Literal["none", "top"] = setting(
        "none", "a node's last child: drawn too, or the likeliest"
    )
    draft_temperature: float = setting(
        0.0, "temperature of the draft; 0 is the request's own", least=0, below=math.inf
    )
    source: str = setting("draft", "name of the drafter", source=True)

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes, and deterministic ones where the request is greedy or with last=top."""
        return drawn_kinds(self.replacement)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Routes: ``sampled_talon``, or ``plain`` where nothing could be drafted."""
        tree = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        deepest = min(self.max_depth, growth.room)
        drawing = drawing_for(growth, self.source, self.replacement, self.draft_temperature)
        parents, d = root_frontier(), 0
        while parents.nodes and tree.drafted < budget and d < deepest:
            left = budget - tree.drafted
            k = min(self.top_k, left) if d < self.robust else left
            answer: Candidates = yield drawing.likeliest(tree, parents, k)
            pool = children(parents, answer)
            if d < self.robust:
                pool = pool.likeliest(self.top_k)  # Eq. 5
            elif len(pool):
                pool = pool.take(pool.path >= pool.path.max() + math.log(self.mu))  # Eq. 3 and 4
            parents = yield from draw_as_many(
                tree, parents, pool.best_first(left), drawing, self.last
            )
            d += 1
        return tree.build("sampled_talon" if tree.drafted else "plain")


PART = SampledTalon
RECIPES = (
    Recipe(
        "traversal-talon",
        "a drawn tree that spends its budget where the model is confident",
        "Traversal Verification, with TALON's gate",
        drafters={"draft": "model"},
        verifier="traversal",
    ),
)
