"""DynaTree with its children drawn instead of taken from the top, for temperatures above 0.

Source: DynaTree, Section 3.3 and Algorithm 1, whose drafts are deterministic; how its gates carry
over to a sampled tree is not in the paper. The gates and the history are
``draftwood.policies._dynatree``'s. It knows its source by name only.

Whether a drawn token stays must not depend on which token it is. So where
``draftwood.policies.dynatree`` adds a node's likeliest children, this policy counts them, before
anything of their level is drawn, and draws as many:

* Breadth by confidence, as there: c(u) is the largest probability of q(.|u), known before u's
  children are drawn.
* Pruning: there, a child whose path probability is under tau is dropped. Here, one that was drawn
  stays however unlikely it is; u gets fewer children, by those of its B(u) likeliest that would
  have been dropped. A node all of whose children would have been dropped gets none.
* Depth by path probability: P(u) is the product of q over the tokens drawn on u's path, and
  decides whether u is expanded, never whether it is kept. So an unlikely draw is a leaf.
* ``last="top"`` keeps each node's likeliest child and draws the others.
* Looking up the likeliest children and drawing are two questions about the rows of one draft
  forward.
* History is measured as there. In a greedy step the tree is DynaTree's own.
* There is no copied path beside the tree: its tokens would have to be kept out of every drawing
  along it, which is what ``draftwood.policies.sampled_spine`` does.

The batch's price is not looked at.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from draftwood.policies._dynatree import DynaTreeRule, DynaTreeState
from draftwood.policies._frontier import root_frontier
from draftwood.policies._sampling import (
    draw_as_many,
    drawing_for,
    drawn_kinds,
)
from draftwood.protocols import Candidates, Grower, Growth, Recipe, setting
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True)
class SampledDynaTree(DynaTreeRule):
    """Draws as many children of a node as DynaTree would take.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    replacement: bool = setting(False, "draw siblings independently, so that they may repeat")
    last: Literal["none", "top"] = setting(
        "none", "a node's last child: drawn too, or the likeliest"
    )
    draft_temperature: float = setting(
        0.0, "temperature of the draft; 0 is the request's own", least=0, below=math.inf
    )

    @property
    def branching(self) -> bool:
        """Unless every node gets one child."""
        return self.most > 1

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes, and deterministic ones where the request is greedy or with last=top."""
        if self.last == "top" and not self.branching:
            return frozenset({Draw.ONE_HOT})
        return drawn_kinds(self.replacement)

    def grow(self, growth: Growth, state: DynaTreeState) -> Grower:
        """Routes: ``sampled_dynatree``, or ``plain`` where nothing could be drafted."""
        tree = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        drawing = drawing_for(growth, self.source, self.replacement, self.draft_temperature)
        active, depth = root_frontier(), 0
        while active.nodes and tree.drafted < budget and depth < growth.room:
            left = budget - tree.drafted
            answer: Candidates = yield drawing.likeliest(tree, active, min(self.most, left))
            level = self.select(active, answer, state)
            chosen = level.take(np.arange(min(left, len(level))))
            added = yield from draw_as_many(tree, active, chosen, drawing, self.last)
            depth += 1
            active = added.where(self.expandable(np.exp(added.path), depth, state))
        return tree.build("sampled_dynatree" if tree.drafted else "plain")


PART = SampledDynaTree
RECIPES = (
    Recipe(
        "traversal-dynatree",
        "a drawn tree, its breadth by confidence, its depth by path probability",
        "Traversal Verification, with DynaTree's gates",
        drafters={"draft": "model"},
        verifier="traversal",
    ),
)
