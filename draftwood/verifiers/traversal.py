"""Traversal Verification: accepts a path of a sampled tree, verified from the leaves up.

Source: "Traversal Verification for Speculative Tree Decoding", Algorithm 3. Deviations:

* Each child is tested against the distribution it was drawn from given its earlier siblings. So one
  rule covers children drawn without replacement (the paper's), with replacement, and not sampled.
* The paper changes P and p of a node whenever it drops a child. These changes do not depend on the
  random decisions (:mod:`draftwood.verifiers._residuals`). What remains is one decision per node,
  in post-order: a node v whose children have all been dropped is accepted with probability h(v) =
  sum R / W, a leaf with P(v), the root always. The first accepted node ends the path.
* The changes are computed when a decision needs them. On a GPU, where each decision would wait for
  them, they are computed before all decisions, level by level for all trees of the batch, behind
  the target's forward.
* Trees without sampled nodes go to the target walk, which accepts as much at less cost.

Only nodes with P > 0 are tested: after a path that p excludes, p may not exist (a logits processor
can leave no token there). It may not exist after another node either. As all of its p were then on
an end that nobody drafts, P of its children is 0 and its h is P.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from draftwood.protocols import Verdict
from draftwood.tree import ROOT
from draftwood.verifiers._residuals import JudgedTree, SampledVerifier, bonus, keep_probability


@dataclass(frozen=True)
class Traversal(SampledVerifier):
    """Lossless for every tree from which nothing is removed after drawing; optimal on chains.

    It is not better than token-level rejection on every tree. It accepts most if the first drawn
    sibling has the deepest subtree and deterministic children come last.
    """

    def verdict(self, tree: JudgedTree) -> Verdict:
        """Accept the first node, in post-order, whose random number is below its h."""
        case = tree.case
        accepts = case.noise.accepts
        node = next(v for v, h in keep_probabilities(tree) if v == ROOT or accepts(v, h))
        return Verdict(case.tree.path(node), bonus(case, node, tree.tested.get(node)))


def keep_probabilities(tree: JudgedTree) -> Iterator[tuple[int, float]]:
    """Nodes in post-order with their acceptance probability h, once; the root is last, with 1.

    h is the probability given that no earlier node was accepted.
    """
    path = [(ROOT, 1.0, _below(tree, ROOT, 1.0))]
    while path:
        node, reach, below = path[-1]
        child = next(below, None)
        if child is not None:
            path.append((*child, _below(tree, *child)))
            continue
        path.pop()
        tested = tree.tested.get(node)
        probability = keep_probability(tested, reach) if tested else reach
        yield node, 1.0 if node == ROOT else probability


def _below(tree: JudgedTree, node: int, reach: float) -> Iterator[tuple[int, float]]:
    """The children of a node, each with its P, computed when it is read."""
    children = tree.children[node]
    if not children or reach == 0:
        return zip(children, repeat(0.0), strict=False)
    tested = tree.at(node, reach)
    return zip(children, repeat(0.0) if tested is None else tested.probabilities, strict=False)


PART = Traversal
