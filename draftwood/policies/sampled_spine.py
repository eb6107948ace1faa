"""GOOSE's spine tree with branches drawn from a draft model, for temperatures above 0.

Source: GOOSE, Algorithms 1 and 2 and Section 4.3. Drawn branches are not in the paper, which looks
branches up. The shares of the budget, the routing and the adaptation are in
``draftwood.policies._spine``. Differences from ``draftwood.policies.spine``:

* At the root and at every spine node the branches are drawn from q, with the spine's next token
  excluded. That token is known before the drawing, so it is a deterministic sibling. It is verified
  after the drawn ones: in the order of nodes the spine comes last among siblings.
* The spine is laid before its branches are queried. So one query, and one forward of a draft model,
  covers the root and the whole spine. At the end the tree is put into the order of verification.
* The number of a branch leaf's children depends on the draws of the leaf and its siblings (its q
  over the largest among them), never on its own children, and every drawn node stays. So a leaf's
  share is ``max(1, round(K * share))`` or the rest of the budget, where the ranked tree stops
  attaching nodes when the budget is spent.
* A token of the spine among the successors costs the ranked tree one of its K candidates; here it
  is excluded beforehand.
* In a greedy step the branches are the likeliest tokens, without those below ``min_score``. A
  drawn token stays however unlikely it is: leaving it out would change the output distribution.

If no branch can be drawn, the match is verified as the whole chain. The paper's tree always spends
its budget, whatever a node costs.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftwood.policies._frontier import certain_children, certain_frontier
from draftwood.policies._sampling import Drawing, DrawnPolicy, draw_below
from draftwood.policies._spine import SpineRule, SpineShape, SpineState, bypasses
from draftwood.protocols import Continuation, Continue, Expand, Grower, Growth, Recipe
from draftwood.tree import TreeBuilder


def spine_last(tree: TreeBuilder, spine: int) -> list[int]:
    """The drafted nodes level by level, every node of the spine behind its siblings.

    Siblings otherwise keep their order. Nodes 1 to ``spine`` are the spine's.
    """
    return sorted(range(1, len(tree)), key=lambda node: (tree.depths[node], node <= spine))


def draw_branches(
    tree: TreeBuilder, shape: SpineShape, drawing: Drawing, chain: str
) -> Generator[Expand, Any, None]:
    """Steps 2 to 4 of Algorithm 1, over a builder that holds the spine and nothing else.

    Leaves wait in a queue for their children, in order of attachment. To ask about many of them at
    once, its front is taken for as long as their shares fit into what is left of the budget.
    """
    spine = tree.drafted
    certain = certain_children(range(spine), tree.tokens[1:])
    shares = [shape.root_branches(spine), *shape.node_branches(spine)]
    asked = {
        node: min(share, shape.top_k)
        for node, share in enumerate(shares)
        if share and node < shape.room
    }
    below = dict.fromkeys(range(spine + 1), 0)  # depth of a node below its branching point
    queue: list[tuple[int, int]] = []  # leaf and its share
    head = 0
    while asked:
        counts = np.array(list(asked.values()), dtype=np.int64)
        drawn, _ = yield from draw_below(
            tree, certain_frontier(asked), counts, drawing, certain, chain, shape.min_score
        )
        certain = certain_children()
        queue += _shares(tree, drawn.nodes, shape, below)
        left = shape.size - len(tree)
        asked = {}
        while left > 0 and head < len(queue):
            leaf, width = queue[head]
            asked[leaf] = min(width, left)
            left -= asked[leaf]
            head += 1


def _shares(
    tree: TreeBuilder, drawn: list[int], shape: SpineShape, below: dict[int, int]
) -> list[tuple[int, int]]:
    """The drawn nodes that may have children, in order, with how many; ``below`` is filled in."""
    best: dict[int, float] = {}
    for node in drawn:
        parent = tree.parents[node]
        below[node] = below[parent] + 1
        best[parent] = max(best.get(parent, -np.inf), tree.logq[node])
    return [
        (node, shape.leaf_width(float(np.exp(tree.logq[node] - best[tree.parents[node]]))))
        for node in drawn
        if below[node] < shape.max_depth and tree.depths[node] < shape.room
    ]


@dataclass(frozen=True)
class SampledSpine(DrawnPolicy, SpineRule):
    """Drafts a copied spine with sampled branches."""

    def grow(self, growth: Growth, state: SpineState) -> Grower:
        """Grow the tree by Algorithm 2.

        Routes: ``bypass``, ``spine``, ``transition`` (no spine), ``chain`` (no branches) and
        ``plain`` (neither source has a candidate).
        """
        tree = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        if budget < 1 or growth.room < 1:
            return tree.build("plain")
        offers: tuple[Continuation, ...] = yield Continue(self.chain)
        copied = offers[0].tokens[: min(budget, growth.room)] if offers else ()
        if copied and bypasses(offers[0], self.bypass, self.bypass_length):
            tree.add_chain(copied, self.chain)
            return tree.build("bypass")
        shape = self.shape(budget, growth.room, state)
        spine = shape.spine_length(len(copied))
        tree.add_chain(copied[:spine], self.chain)
        yield from draw_branches(tree, shape, self.drawing(growth), self.chain)
        if tree.drafted > spine:
            return tree.part(spine_last(tree, spine), "spine" if spine else "transition")
        tree.add_chain(copied[spine:], self.chain, parent=spine)
        return tree.build("chain" if tree.drafted else "plain")


PART = SampledSpine
RECIPES = (
    Recipe(
        "goose-sampled",
        "GOOSE's spine, with branches sampled from a draft model",
        "Traversal Verification, with GOOSE's spine",
        drafters={"context": "context", "draft": "model"},
        verifier="traversal",
    ),
)
