"""Block Verification: accepts a prefix of a sampled chain, verified as a whole.

Source: Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", Algorithm 2. For a
chain x_1 .. x_L whose token x_i+1 was drawn from q_i, and p_i the target's distribution after x_i::

    P_0 = 1;  P_i+1 = min(1, P_i p_i(x_i+1) / q_i(x_i+1))
    S_i = sum max(P_i p_i - q_i, 0);  h_i = S_i / (S_i + 1 - P_i);  h_L = P_L

The longest prefix is accepted whose own random number is below its h. The bonus is drawn from
max(P_i p_i - q_i, 0), after the whole chain from p_L.

Deviations: a token that was not sampled counts as drawn from its one-hot distribution, and trees
without sampled nodes go to the target walk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.errors import DraftwoodError
from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT
from draftwood.verifiers._residuals import (
    SampledVerifier,
    Siblings,
    Tested,
    bonus,
    keep_probability,
    try_children,
)


@dataclass(frozen=True)
class Block(SampledVerifier):
    """Lossless and optimal for sampled chains; other sampled trees are refused."""

    branching: ClassVar = False

    def judge(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Accept the longest prefix of each chain whose random number is below its h.

        Raises:
            DraftwoodError: a tree with sampled nodes branches.
        """
        chains = [_Chain(case) for case in cases]
        while active := [chain for chain in chains if chain.unfinished()]:
            for chain, tested in zip(
                active, try_children([chain.siblings() for chain in active], self.mode), strict=True
            ):
                chain.step(tested)
        return [chain.verdict() for chain in chains]


class _Chain:
    """A chain, P of its first nodes, and the test results of all but the last of these."""

    __slots__ = ("case", "reach", "tested")

    def __init__(self, case: Verification) -> None:
        if len(set(case.tree.parents.tolist())) < len(case.tree):
            raise DraftwoodError(
                "block verification judges chains, but in this tree a node has several children: "
                "choose verifier 'traversal' or 'rejection'"
            )
        self.case = case
        self.reach = [1.0]
        self.tested: list[Tested] = []

    def unfinished(self) -> bool:
        """Whether the last node with a known P can be reached and has a child."""
        return self.reach[-1] > 0 and len(self.reach) < len(self.case.tree)

    def siblings(self) -> Siblings:
        """The next node to test, with its child."""
        node = len(self.tested)
        return Siblings(self.case, node, (node + 1,), self.reach[node])

    def step(self, tested: Tested) -> None:
        """Go one node down."""
        self.tested.append(tested)
        self.reach.append(next(iter(tested.probabilities)))

    def verdict(self) -> Verdict:
        """The verdict: prefixes are tried from the longest to the shortest."""
        case = self.case
        node = len(self.reach) - 1
        while node != ROOT and not case.noise.accepts(node, self._keep_probability(node)):
            node -= 1
        tested = self.tested[node] if node < len(self.tested) else None
        return Verdict(tuple(range(1, node + 1)), bonus(case, node, tested))

    def _keep_probability(self, node: int) -> float:
        """h of a node."""
        reach = self.reach[node]
        return keep_probability(self.tested[node], reach) if node < len(self.tested) else reach


PART = Block
