"""Traversal Verification: which path of a sampled tree is kept, judged from the leaves up.

Source: "Traversal Verification for Speculative Tree Decoding", Algorithm 3. Deviations:

* Each child carries the distribution it was drawn from given its earlier siblings, so that one rule
  covers children drawn without replacement (the paper's), with replacement and not at all.
* The paper changes P and p of a node whenever it drops a child. Those changes do not depend on the
  random decisions, so they are made level by level from the root down (:mod:`draftwood.residuals`)
  for all trees of the batch. What is left is one decision a node, in post-order: a node v whose
  children have all been dropped is accepted with probability h(v) = sum R / W, a leaf with P(v),
  the root surely, and the first one accepted is the answer.
* Trees without sampled nodes go to the target walk, which accepts as much for less.

A level's numbers go to the host once: only nodes with P > 0 are asked about, because p after a path
that p excludes may not exist (a logits processor can leave no token there).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Case, Verdict
from draftwood.residuals import Spot, Tried, bonus, children_of, judge, try_children
from draftwood.tree import ROOT, Draw


@dataclass(frozen=True)
class Traversal:
    """Lossless for every tree that is left as it was drawn; optimal on chains.

    Give the sibling that is drawn first the deepest subtree, and let children that were not drawn
    come last: it is not better than token-level rejection on every tree.
    """

    accepts: ClassVar = frozenset({Draw.ONE_HOT, Draw.WITHOUT_REPLACEMENT, Draw.IID})
    branching: ClassVar = True

    def verify(self, cases: Sequence[Case]) -> list[Verdict]:
        """Accept the first node, in post-order, that its own random number lets through."""
        return judge(cases, lambda sampled: [tree.verdict() for tree in judged(sampled)])


class Judged:
    """What is known of one tree: P of its nodes, and R of those that have children."""

    __slots__ = ("case", "children", "reach", "tried")

    def __init__(self, case: Case) -> None:
        self.case = case
        self.children = children_of(case.tree)
        self.reach = {ROOT: 1.0}
        self.tried: dict[int, Tried] = {}

    def goes_on(self, node: int) -> bool:
        """Whether a node can be reached and has children."""
        return self.reach[node] > 0 and bool(self.children[node])

    def chances(self) -> Iterator[tuple[int, float]]:
        """Nodes in post-order, each with the probability h to be accepted once it is reached there.

        The root comes last, and surely.
        """
        for node in _post_order(self.children):
            reach, tried = self.reach.get(node, 0.0), self.tried.get(node)
            chance = tried.kept(reach) if tried else reach
            yield node, 1.0 if node == ROOT else chance

    def verdict(self) -> Verdict:
        """The first node that its own random number lets through."""
        accepts = self.case.noise.accepts
        node = next(v for v, h in self.chances() if v == ROOT or accepts(v, h))
        return Verdict(self.case.tree.path(node), bonus(self.case, node, self.tried.get(node)))


def judged(cases: Sequence[Case]) -> list[Judged]:
    """What the rule says of each tree, before any random decision."""
    trees = [Judged(case) for case in cases]
    level = [(tree, ROOT) for tree in trees]
    while level:
        spots = [Spot(t.case, node, t.children[node], t.reach[node]) for t, node in level]
        below: list[tuple[Judged, int]] = []
        for (tree, node), spot, tried in zip(level, spots, try_children(spots), strict=True):
            tree.tried[node] = tried
            tree.reach.update(zip(spot.children, tried.chances, strict=True))
            below += [(tree, child) for child in spot.children if tree.goes_on(child)]
        level = below
    return trees


def _post_order(children: Sequence[Sequence[int]]) -> Iterator[int]:
    """Every node after its descendants, siblings in drawing order."""
    order: list[int] = []
    waiting = [ROOT]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += children[node]
    return reversed(order)


PART = Traversal
