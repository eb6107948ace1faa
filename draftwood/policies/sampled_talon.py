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
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from draftwood.errors import DraftwoodError
from draftwood.policies._frontier import children, root_frontier
from draftwood.policies._sampling import (
    check_draft_temperature,
    draw_as_many,
    drawing_for,
    drawn_kinds,
)
from draftwood.protocols import Candidates, Grower, Growth, Outcome, Policy
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True)
class SampledTalon(Policy):
    """Draws as many children of a node as TALON would take.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = field(default=59, metadata={"help": "most nodes to draft, root excluded"})
    mu: float = field(
        default=0.03, metadata={"help": "least path probability, relative to the level's best"}
    )
    top_k: int = field(default=10, metadata={"help": "nodes of an ungated level (K)"})
    robust: int = field(default=1, metadata={"help": "how many levels from the root are ungated"})
    max_depth: int = field(default=32, metadata={"help": "most draft forwards in a step"})
    replacement: bool = field(
        default=False, metadata={"help": "draw siblings independently, so that they may repeat"}
    )
    last: Literal["none", "top"] = field(
        default="none", metadata={"help": "a node's last child: drawn too, or the likeliest"}
    )
    draft_temperature: float = field(
        default=0.0, metadata={"help": "temperature of the draft; 0 is the request's own"}
    )
    source: str = field(default="draft", metadata={"help": "name of the drafter"})

    branching: ClassVar = True

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("top_k", 1), ("robust", 0), ("max_depth", 1)):
            if getattr(self, name) < least:
                raise DraftwoodError(f"{name} is {getattr(self, name)}; give at least {least}")
        if not 0.0 < self.mu <= 1.0:
            raise DraftwoodError(f"mu is {self.mu}; give a number above 0 and at most 1")
        if self.last not in {"none", "top"}:
            raise DraftwoodError(f'last is "{self.last}"; give one of none, top')
        check_draft_temperature(self.draft_temperature)

    @property
    def sources(self) -> tuple[str, ...]:
        """The drafter."""
        return (self.source,)

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes, and deterministic ones where the request is greedy or with last=top."""
        return drawn_kinds(self.replacement)

    def start(self) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, outcome: Outcome) -> None:
        """There is nothing to learn."""

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
