"""The accept rule of the target walk.

Other verifiers use it for trees without sampled nodes, on which no rule accepts more.
"""

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT


def walk(case: Verification) -> Verdict:
    """Follow the target's draws, keyed by position, as long as the tree has them."""
    node = ROOT
    path: list[int] = []
    while True:
        token = case.p.draw(node, case.noise)
        child = case.tree.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child
