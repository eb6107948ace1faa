"""Token-level recursive rejection sampling: descend into the first sibling that is accepted.

Sources: SpecInfer's multi-step speculative sampling for siblings drawn with replacement, Recursive
Speculative Decoding (RRSw) for siblings drawn without, as in the token-level baseline of "Traversal
Verification for Speculative Tree Decoding". At each node the children are tried in drawing order
against the residual that the ones before them left; the first one accepted is the next node, and
where none is, the residual yields the bonus token. One rule covers both kinds of siblings, and
those that were not drawn, because each is tried against the distribution it was drawn from.

Deviation: trees without sampled nodes go to the target walk, which has the same output law.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
    try_children,
)


@dataclass(frozen=True)
class Rejection:
    """Lossless for every tree that is left as it was drawn."""

    accepts: ClassVar = frozenset(Draw)
    branching: ClassVar = True
    way: ClassVar[Mode | None] = None  #: in which siblings are tried, if it is to be forced

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Walk all trees down together, one level at a time."""
        return judge(cases, self._verdicts)

    def _verdicts(self, cases: Sequence[Verification]) -> list[Verdict]:
        descents = [_Descent(case) for case in cases]
        while going := [descent for descent in descents if descent.goes_on()]:
            found = try_children([descent.spot() for descent in going], self.way)
            for descent, tried in zip(going, found, strict=True):
                descent.step(tried)
        return [descent.verdict() for descent in descents]


class _Descent:
    """How far down one tree its verdict has come."""

    __slots__ = ("_children", "_left", "case", "node")

    def __init__(self, case: Verification) -> None:
        self.case = case
        self.node = ROOT
        self._children = children_of(case.tree)
        self._left: Tested | None = None

    def goes_on(self) -> bool:
        return self._left is None and bool(self._children[self.node])

    def spot(self) -> Siblings:
        return Siblings(self.case, self.node, self._children[self.node], 1.0)

    def step(self, tried: Tested) -> None:
        for child, chance in zip(self._children[self.node], tried.chances, strict=True):
            if self.case.noise.accepts(child, chance):
                self.node = child
                return
        self._left = tried

    def verdict(self) -> Verdict:
        path = self.case.tree.path(self.node)
        return Verdict(path, bonus(self.case, self.node, self._left))


PART = Rejection
