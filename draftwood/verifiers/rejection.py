"""Token-level recursive rejection sampling: descends into the first accepted sibling.

Sources: SpecInfer's multi-step speculative sampling for siblings drawn with replacement, Recursive
Speculative Decoding (RRSw) for siblings drawn without, as in the token-level baseline of "Traversal
Verification for Speculative Tree Decoding". At each node the children are tested in drawing order
against the residual that earlier siblings left. The first accepted child is the next node. If none
is accepted, the bonus token is drawn from the residual. One rule covers both kinds of siblings and
deterministic ones, because each child is tested against the distribution it was drawn from.

Deviation: trees without sampled nodes go to the target walk, which has the same output law.
"""

from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Verdict
from draftwood.tree import ROOT
from draftwood.verifiers._residuals import JudgedTree, SampledVerifier, bonus


@dataclass(frozen=True)
class Rejection(SampledVerifier):
    """Lossless for every tree from which nothing is removed after drawing."""

    carried: ClassVar = False

    def verdict(self, tree: JudgedTree) -> Verdict:
        """Descend the tree to the last accepted node."""
        case, node = tree.case, ROOT
        while True:
            children = tree.children[node]
            tested = tree.at(node, 1.0) if children else None
            probabilities = () if tested is None else tested.probabilities
            for child, probability in zip(children, probabilities, strict=tested is not None):
                if case.noise.accepts(child, probability):
                    node = child
                    break
            else:
                return Verdict(case.tree.path(node), bonus(case, node, tested))


PART = Rejection
