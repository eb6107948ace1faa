"""Traversal Verification: which path of a sampled tree is kept, judged from the leaves up.

Source: "Traversal Verification for Speculative Tree Decoding", Algorithm 3. Deviations:

* Each child carries the distribution it was drawn from given its earlier siblings, so that one rule
  covers children drawn without replacement (the paper's), with replacement and not at all.
* The paper changes P and p of a node whenever it drops a child. Those changes do not depend on the
  random decisions (:mod:`draftwood.verifiers._residuals`). What is left is one decision a node, in
  post-order: a node v whose children have all been dropped is accepted with probability h(v) = sum
  R / W, a leaf with P(v), the root surely, and the first one accepted is the answer.
* The changes are made as the decisions ask for them or, where that would mean a hand-over for each,
  level by level from the root down, for all trees of the batch at once.
* Trees without sampled nodes go to the target walk, which accepts as much for less.

Only nodes with P > 0 are asked about, because p after a path that p excludes may not exist (a
logits processor can leave no token there).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT, Draw
from draftwood.verifiers._residuals import (
    Mode,
    Siblings,
    Tested,
    bonus,
    children_of,
    judge,
    kept,
    try_children,
)


@dataclass(frozen=True)
class Traversal:
    """Lossless for every tree that is left as it was drawn; optimal on chains.

    Give the sibling that is drawn first the deepest subtree, and let children that were not drawn
    come last: it is not better than token-level rejection on every tree.
    """

    accepts: ClassVar = frozenset(Draw)
    branching: ClassVar = True
    way: ClassVar[Mode | None] = None  #: in which siblings are tried, if it is to be forced

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Accept the first node, in post-order, that its own random number lets through."""
        return judge(cases, lambda sampled: [t.verdict() for t in judged(sampled, self.way)])


class Judged:
    """One tree, and what came of the children that have been tried."""

    __slots__ = ("_way", "case", "children", "tried")

    def __init__(self, case: Verification, way: Mode | None) -> None:
        self.case = case
        self.children = children_of(case.tree)
        self.tried: dict[int, Tested] = {}
        self._way = way

    def spot(self, node: int, reach: float) -> Siblings:
        """A node that has children and is reached."""
        return Siblings(self.case, node, self.children[node], reach)

    def chances(self) -> Iterator[tuple[int, float]]:
        """Nodes in post-order, each with the probability h to be accepted once it is reached there.

        The root comes last, and surely. To be gone through once.
        """
        path = [(ROOT, 1.0, self._below(ROOT, 1.0))]
        while path:
            node, reach, below = path[-1]
            child = next(below, None)
            if child is not None:
                path.append((*child, self._below(*child)))
                continue
            path.pop()
            tried = self.tried.get(node)
            chance = kept(tried, reach) if tried else reach
            yield node, 1.0 if node == ROOT else chance

    def verdict(self) -> Verdict:
        """The first node that its own random number lets through."""
        accepts = self.case.noise.accepts
        node = next(v for v, h in self.chances() if v == ROOT or accepts(v, h))
        return Verdict(self.case.tree.path(node), bonus(self.case, node, self.tried.get(node)))

    def _below(self, node: int, reach: float) -> Iterator[tuple[int, float]]:
        """The children of a node, and P of each once it is come to."""
        children = self.children[node]
        if not children or reach == 0:
            return zip(children, repeat(0.0), strict=False)
        if node not in self.tried:
            [self.tried[node]] = try_children([self.spot(node, reach)], self._way)
        return zip(children, self.tried[node].chances, strict=True)


def judged(cases: Sequence[Verification], way: Mode | None = None) -> list[Judged]:
    """The trees, before any random decision, with all that may be known of them by then.

    What is known of a level's children leads to the next level; if nothing is, the rest is left to
    the decisions.
    """
    trees = [Judged(case, way) for case in cases]
    level = [(tree, ROOT, 1.0) for tree in trees]
    while level:
        below: list[tuple[Judged, int, float]] = []
        found = try_children([tree.spot(node, reach) for tree, node, reach in level], way)
        for (tree, node, _), tried in zip(level, found, strict=True):
            tree.tried[node] = tried
            if tried.known:
                own = zip(tree.children[node], tried.chances, strict=True)
                below += [(tree, c, chance) for c, chance in own if chance > 0 and tree.children[c]]
        level = below
    return trees


PART = Traversal
