"""Token-level recursive rejection sampling: descends into the first accepted sibling.

Sources: SpecInfer's multi-step speculative sampling for siblings drawn with replacement, Recursive
Speculative Decoding (RRSw) for siblings drawn without, as in the token-level baseline of "Traversal
Verification for Speculative Tree Decoding". At each node the children are tested in drawing order
against the residual that earlier siblings left. The first accepted child is the next node. If none
is accepted, the bonus token is drawn from the residual. One rule covers both kinds of siblings and
deterministic ones, because each child is tested against the distribution it was drawn from.

Deviation: trees without sampled nodes go to the target walk, which has the same output law.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT
from draftwood.verifiers._residuals import (
    SampledVerifier,
    Siblings,
    Tested,
    bonus,
    children_of,
    try_children,
)


@dataclass(frozen=True)
class Rejection(SampledVerifier):
    """Lossless for every tree from which nothing is removed after drawing."""

    def judge(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Descend all trees together, one level at a time."""
        descents = [_Descent(case) for case in cases]
        while active := [descent for descent in descents if descent.unfinished()]:
            found = try_children([descent.siblings() for descent in active], self.mode)
            for descent, tested in zip(active, found, strict=True):
                descent.step(tested)
        return [descent.verdict() for descent in descents]


class _Descent:
    """The state of descending one tree."""

    __slots__ = ("_children", "_left", "case", "node")

    def __init__(self, case: Verification) -> None:
        self.case = case
        self.node = ROOT
        self._children = children_of(case.tree)
        self._left: Tested | None = None

    def unfinished(self) -> bool:
        return self._left is None and bool(self._children[self.node])

    def siblings(self) -> Siblings:
        return Siblings(self.case, self.node, self._children[self.node], 1.0)

    def step(self, tested: Tested) -> None:
        for child, probability in zip(self._children[self.node], tested.probabilities, strict=True):
            if self.case.noise.accepts(child, probability):
                self.node = child
                return
        self._left = tested

    def verdict(self) -> Verdict:
        path = self.case.tree.path(self.node)
        return Verdict(path, bonus(self.case, self.node, self._left))


PART = Rejection
