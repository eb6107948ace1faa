"""DynaTree: breadth by the drafter's confidence, depth by path probability, both tuned by history.

Source: DynaTree, Section 3.3 and Algorithm 1 (``DRAFTTREE`` and ``ADJUST``). It knows its sources
by name only.

What the paper leaves open, and where this differs, besides what ``draftwood.policies._dynatree``
(the gates, the history) says:

* A whole level is expanded in one draft forward, in the paper's breadth-first order.
* ``chain`` names a copying source, whose preferred continuation becomes a path below the root (not
  in the paper). These nodes are laid first, take at most half of the budget, and are neither gated
  nor pruned. Their own descendants come from the drafter, and only where the drafter proposed the
  copied token too and the gates let it pass; such a token is one node and takes no further budget.
  a_r then is measured against the deepest node that the drafter alone proposed, and is 1 at most.

The batch's price is not looked at.
"""

from dataclasses import dataclass

import numpy as np

from draftwood.policies._dynatree import DynaTreeRule, DynaTreeState
from draftwood.policies._frontier import lay_copied, promote, root_frontier
from draftwood.protocols import Candidates, Expand, Grower, Growth, Recipe, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class DynaTree(DynaTreeRule):
    """The policy of DynaTree; its settings are the rule's and those of the copied path.

    Raises:
        DraftwoodError: a setting outside its range, or one source named twice.
    """

    chain: str = setting(
        "", "name of a source that copies, as an extra path; empty: none", source=True
    )
    copied: int = setting(10, "longest copied path, in tokens (half the budget at most)", least=1)

    def grow(self, growth: Growth, state: DynaTreeState) -> Grower:
        """``DRAFTTREE``. Routes: ``dynatree``, or ``plain`` where nothing could be drafted."""
        tree = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        if self.chain:
            yield from lay_copied(tree, self.chain, min(self.copied, budget // 2, growth.room))
        shared = 1 if tree.drafted else 0  # a level meets the copied path in one node at most
        active, depth = root_frontier(), 0
        while active.nodes and tree.drafted < budget and depth < growth.room:  # line 12
            k = min(self.most, budget - tree.drafted + shared)
            answer: Candidates = yield Expand(self.source, tree, active.nodes, k)  # line 26
            level = self.select(active, answer, state)  # lines 27 and 14 to 16
            added = promote(tree, level, self.source, budget)  # line 28
            depth += 1
            active = added.where(self.expandable(np.exp(added.path), depth, state))  # 17 to 25
        return tree.build("dynatree" if tree.drafted else "plain")


PART = DynaTree
RECIPES = (
    Recipe(
        "dynatree",
        "a draft model's tree, its breadth by confidence, its depth by path probability",
        "DynaTree (adaptive draft-model trees)",
        drafters={"draft": "model", "context": "context"},
    ),
)
