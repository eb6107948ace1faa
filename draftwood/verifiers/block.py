"""Block Verification: how much of a sampled chain is kept, judged as a whole.

Source: Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", Algorithm 2. For a
chain x_1 .. x_L whose token x_i+1 was drawn from q_i, and p_i the target's distribution after x_i::

    P_0 = 1;  P_i+1 = min(1, P_i p_i(x_i+1) / q_i(x_i+1))
    S_i = sum max(P_i p_i - q_i, 0);  h_i = S_i / (S_i + 1 - P_i);  h_L = P_L

The longest prefix is kept whose own random number is below its h; the bonus is drawn from
max(P_i p_i - q_i, 0), after the whole chain from p_L.

Deviation: a token that was not drawn counts as drawn from its one-hot distribution, and trees
without sampled nodes go to the target walk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.errors import DraftwoodError
from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT, Draw
from draftwood.verifiers._residuals import Mode, Siblings, Tested, bonus, judge, kept, try_children


@dataclass(frozen=True)
class Block:
    """Lossless and optimal for sampled chains; it judges no other trees."""

    accepts: ClassVar = frozenset(Draw)
    branching: ClassVar = False
    way: ClassVar[Mode | None] = None  #: in which a child is tried, if it is to be forced

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Keep the longest prefix of each chain that its own random number lets through.

        Raises:
            DraftwoodError: a tree with sampled nodes branches.
        """
        return judge(cases, self._verdicts)

    def _verdicts(self, cases: Sequence[Verification]) -> list[Verdict]:
        chains = [_Chain(case) for case in cases]
        while going := [chain for chain in chains if chain.goes_on()]:
            for chain, tried in zip(
                going, try_children([chain.spot() for chain in going], self.way), strict=True
            ):
                chain.step(tried)
        return [chain.verdict() for chain in chains]


class _Chain:
    """A chain, P of its first nodes, and what the children of all but the last of these left."""

    __slots__ = ("case", "reach", "tried")

    def __init__(self, case: Verification) -> None:
        if len(set(case.tree.parents.tolist())) < len(case.tree):
            raise DraftwoodError(
                "block verification judges chains, but in this tree a node has several children: "
                "choose verifier 'traversal' or 'rejection'"
            )
        self.case = case
        self.reach = [1.0]
        self.tried: list[Tested] = []

    def goes_on(self) -> bool:
        """Whether the last known node can be reached and has a child."""
        return self.reach[-1] > 0 and len(self.reach) < len(self.case.tree)

    def spot(self) -> Siblings:
        """That node."""
        node = len(self.tried)
        return Siblings(self.case, node, (node + 1,), self.reach[node])

    def step(self, tried: Tested) -> None:
        """One node further down."""
        self.tried.append(tried)
        self.reach.append(next(iter(tried.chances)))

    def verdict(self) -> Verdict:
        """What is kept, from the end up."""
        case = self.case
        node = len(self.reach) - 1
        while node != ROOT and not case.noise.accepts(node, self._chance(node)):
            node -= 1
        tried = self.tried[node] if node < len(self.tried) else None
        return Verdict(tuple(range(1, node + 1)), bonus(case, node, tried))

    def _chance(self, node: int) -> float:
        """h of a node."""
        reach = self.reach[node]
        return kept(self.tried[node], reach) if node < len(self.tried) else reach


PART = Block
