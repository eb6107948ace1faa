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

from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Verdict
from draftwood.tree import ROOT, TokenTree
from draftwood.verifiers._residuals import JudgedTree, SampledVerifier, bonus, keep_probability


@dataclass(frozen=True)
class Block(SampledVerifier):
    """Lossless and optimal for sampled chains; other sampled trees are refused."""

    branching: ClassVar = False

    def complaint(self, tree: TokenTree) -> str:
        """Trees must not branch."""
        if len(set(tree.parents.tolist())) == len(tree):
            return ""
        return (
            "block verification judges chains, but in this tree a node has several children: "
            "choose verifier 'traversal' or 'rejection'"
        )

    def verdict(self, tree: JudgedTree) -> Verdict:
        """Accept the longest prefix whose random number is below its h."""
        case = tree.case
        reach = [1.0]
        while reach[-1] > 0 and len(reach) < len(case.tree):
            node = len(reach) - 1
            tested = tree.at(node, reach[node])
            # Behind a node that no token can follow, P is 0.
            reach.append(0.0 if tested is None else next(iter(tested.probabilities)))
        node = len(reach) - 1
        while node != ROOT and not case.noise.accepts(node, _keep_probability(tree, node, reach)):
            node -= 1
        return Verdict(tuple(range(1, node + 1)), bonus(case, node, tree.tested.get(node)))


def _keep_probability(chain: JudgedTree, node: int, reach: list[float]) -> float:
    """h of a node."""
    tested = chain.tested.get(node)
    return reach[node] if tested is None else keep_probability(tested, reach[node])


PART = Block
