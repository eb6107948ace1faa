"""Traversal Verification: accepts a path of a sampled tree, verified from the leaves up.

Source: "Traversal Verification for Speculative Tree Decoding", Algorithm 3. Deviations:

* Each child is tested against the distribution it was drawn from given its earlier siblings. So one
  rule covers children drawn without replacement (the paper's), with replacement, and not sampled.
* The paper changes P and p of a node whenever it drops a child. These changes do not depend on the
  random decisions (:mod:`draftwood.verifiers._residuals`). What remains is one decision per node,
  in post-order: a node v whose children have all been dropped is accepted with probability h(v) =
  sum R / W, a leaf with P(v), the root always. The first accepted node ends the path.
* The changes are computed when a decision needs them. On a GPU, where that would copy to the host
  each time, they are computed level by level for all trees of the batch at once.
* Trees without sampled nodes go to the target walk, which accepts as much at less cost.

Only nodes with P > 0 are tested: after a path that p excludes, p may not exist (a logits processor
can leave no token there).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT
from draftwood.verifiers._residuals import (
    Mode,
    SampledVerifier,
    Siblings,
    Tested,
    bonus,
    children_of,
    keep_probability,
    try_children,
)


@dataclass(frozen=True)
class Traversal(SampledVerifier):
    """Lossless for every tree from which nothing is removed after drawing; optimal on chains.

    It is not better than token-level rejection on every tree. It accepts most if the first drawn
    sibling has the deepest subtree and deterministic children come last.
    """

    def judge(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Accept the first node, in post-order, whose random number is below its h."""
        return [tree.verdict() for tree in judged_trees(cases, self.mode)]


class JudgedTree:
    """A tree with the test results of its siblings."""

    __slots__ = ("_mode", "case", "children", "tested")

    def __init__(self, case: Verification, mode: Mode | None) -> None:
        self.case = case
        self.children = children_of(case.tree)
        self.tested: dict[int, Tested] = {}
        self._mode = mode

    def siblings(self, node: int, reach: float) -> Siblings:
        """A node with its children to test."""
        return Siblings(self.case, node, self.children[node], reach)

    def probabilities(self) -> Iterator[tuple[int, float]]:
        """Nodes in post-order with their acceptance probability h, once; the root is last, with 1.

        h is the probability given that no earlier node was accepted.
        """
        path = [(ROOT, 1.0, self._below(ROOT, 1.0))]
        while path:
            node, reach, below = path[-1]
            child = next(below, None)
            if child is not None:
                path.append((*child, self._below(*child)))
                continue
            path.pop()
            tested = self.tested.get(node)
            probability = keep_probability(tested, reach) if tested else reach
            yield node, 1.0 if node == ROOT else probability

    def verdict(self) -> Verdict:
        """The verdict: the first node whose random number is below its h."""
        accepts = self.case.noise.accepts
        node = next(v for v, h in self.probabilities() if v == ROOT or accepts(v, h))
        return Verdict(self.case.tree.path(node), bonus(self.case, node, self.tested.get(node)))

    def _below(self, node: int, reach: float) -> Iterator[tuple[int, float]]:
        """The children of a node, each with its P, computed when it is read."""
        children = self.children[node]
        if not children or reach == 0:
            return zip(children, repeat(0.0), strict=False)
        if node not in self.tested:
            [self.tested[node]] = try_children([self.siblings(node, reach)], self._mode)
        return zip(children, self.tested[node].probabilities, strict=True)


def judged_trees(cases: Sequence[Verification], mode: Mode | None = None) -> list[JudgedTree]:
    """The trees before any random decision, tested as far as that is cheap.

    In batched mode all levels are tested. In sequential mode tests are deferred to the decisions.
    """
    trees = [JudgedTree(case, mode) for case in cases]
    level = [(tree, ROOT, 1.0) for tree in trees]
    while level:
        below: list[tuple[JudgedTree, int, float]] = []
        found = try_children([tree.siblings(node, reach) for tree, node, reach in level], mode)
        for (tree, node, _), tested in zip(level, found, strict=True):
            tree.tested[node] = tested
            if tested.known:
                own = zip(tree.children[node], tested.probabilities, strict=True)
                below += [
                    (tree, c, probability)
                    for c, probability in own
                    if probability > 0 and tree.children[c]
                ]
        level = below
    return trees


PART = Traversal
