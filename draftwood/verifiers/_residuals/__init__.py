"""The sibling test that verifiers of sampled trees share, and the residual that it leaves of p.

A node v is reached with probability P(v). Its children c_1, c_2, .. were drawn in this order, c_j
from a distribution Q_j that may depend on the earlier ones. The test goes through them in order::

    R = P(v) p(.|v);  W = 1
    for each child c_j:  P(c_j) = min(1, R[c_j] / (W Q_j[c_j]))       (0 where Q_j[c_j] = 0)
                         R = max(R - W Q_j, 0);  W = sum R + 1 - P(v)

This is the treatment of a node and its children in Algorithm 3 of "Traversal Verification for
Speculative Tree Decoding", written so that it can run from the root down. With P(v) = 1 it is
recursive rejection sampling, and R / W is the residual distribution.

Q_j is q if the child was drawn with replacement, and one-hot if it was not sampled. Without
replacement Q_j is q over the remaining tokens, divided by their sum. The sum is computed for each
child: one minus the sum of the drawn tokens loses all digits if q is peaked. R is stored, because
children of one node may come from several rows of q.

The loop is written twice. :mod:`draftwood.verifiers._residuals.batched` tests the children of many
nodes at once. :mod:`draftwood.verifiers._residuals.sequential` tests a child when its result is
needed, because most are not. :mod:`draftwood.verifiers._residuals.judged_tree` chooses.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Verdict, Verification
from draftwood.tree import SAMPLED, Draw, TokenTree
from draftwood.verifiers._residuals.judged_tree import (
    BegunTrees,
    JudgedTree,
    Mode,
    Tested,
    judged_trees,
)
from draftwood.verifiers.walk import walk

if TYPE_CHECKING:
    import torch


def keep_probability(tested: Tested, reach: float) -> float:
    """h: probability to keep a node with P = ``reach`` if no child is accepted.

    In this form rounding of a tiny mass gives neither a value above 1 nor a division by zero.
    """
    return tested.mass / (tested.mass + (1 - reach)) if tested.mass > 0 else 0.0


def bonus(case: Verification, node: int, tested: Tested | None) -> int:
    """The token after the last accepted node, drawn from the residual that its children left.

    Args:
        case: the tree.
        node: the node.
        tested: what its children left; None: it has none, or no token can follow it.

    Raises:
        DraftwoodError: no token can follow it.
    """
    # Only rounding leaves no residual: in exact arithmetic such a node is never the last one.
    if tested is None or tested.mass == 0:
        return case.p.draw(node, case.noise)
    if tested.token is not None:
        return tested.token
    return case.noise.choose(int(case.tree.depths[node]), tested.residual)


class SampledVerifier(ABC):
    """Base of the verifiers of sampled trees.

    On a tree without sampled nodes no rule accepts more than the target walk, which verifies it.
    """

    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    branching: ClassVar[bool] = True
    mode: ClassVar[Mode | None] = None  #: forces a mode of testing
    carried: ClassVar[bool] = True  #: whether P of a node is what the test at its parent gives

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Judge the trees with sampled nodes together, and walk the others.

        Raises:
            DraftwoodError: a tree has sampled nodes and coupled ones, or cannot be judged.
        """
        kinds = [set(case.tree.draws.tolist()) for case in cases]
        sampled = [bool(kind & SAMPLED) for kind in kinds]
        if any(yes and Draw.COUPLED in kind for yes, kind in zip(sampled, kinds, strict=True)):
            raise DraftwoodError(
                "a tree has nodes that were drawn with the target's random numbers and others that "
                "were drawn with their own: no rule is lossless for both"
            )
        drawn = [case for case, yes in zip(cases, sampled, strict=True) if yes]
        self._check(drawn)
        trees = iter(judged_trees(drawn, self.mode, carried=self.carried))
        return [
            self.verdict(next(trees)) if yes else walk(case)
            for case, yes in zip(cases, sampled, strict=True)
        ]

    def early(self, tree: TokenTree) -> bool:
        """Whether a tree can be tested before the output is read: it has only nodes to test."""
        kinds = set(tree.draws.tolist())
        tested = bool(kinds & SAMPLED) and Draw.COUPLED not in kinds
        return tested and self.mode is not Mode.SEQUENTIAL

    def begin(self, cases: Sequence[Verification]) -> "BegunTests":
        """Begin to test the siblings of trees, all at once on their device."""
        self._check(cases)
        return BegunTests(self, BegunTrees(cases, carried=self.carried))

    def complaint(self, tree: TokenTree) -> str:  # noqa: ARG002
        """Why the rule cannot judge a tree with sampled nodes; empty: it can, as most judge all."""
        return ""

    def _check(self, cases: Sequence[Verification]) -> None:
        for case in cases:
            if complaint := self.complaint(case.tree):
                raise DraftwoodError(complaint)

    @abstractmethod
    def verdict(self, tree: JudgedTree) -> Verdict:
        """The rule: the accepted path and the bonus token of a tree with sampled nodes."""


@dataclass(frozen=True)
class BegunTests:
    """A :class:`draftwood.protocols.BegunVerification`.

    Attributes:
        verifier: decides.
        trees: what the device tests.
    """

    verifier: SampledVerifier
    trees: BegunTrees

    @property
    def tensors(self) -> Sequence["torch.Tensor"]:
        """What the verdicts need of the device."""
        return self.trees.tensors

    def verdicts(
        self, cases: Sequence[Verification], numbers: Sequence[NDArray[Any]]
    ) -> list[Verdict]:
        """The verdicts by the tests' results."""
        return [self.verifier.verdict(tree) for tree in self.trees.judged(cases, numbers)]


__all__ = [
    "BegunTests",
    "JudgedTree",
    "Mode",
    "SampledVerifier",
    "Tested",
    "bonus",
    "judged_trees",
    "keep_probability",
]
