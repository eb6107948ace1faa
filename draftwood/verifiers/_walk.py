"""One walk down a tree along the target's own draws.

The whole rule of the verifier for deterministic trees; the others use it where nothing was sampled,
because there no rule accepts more.
"""

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT


def walk(case: Verification) -> Verdict:
    """Follow the target's draws, which are keyed by position, for as long as the tree has them."""
    node = ROOT
    path: list[int] = []
    while True:
        token = case.p.draw(node, case.noise)
        child = case.tree.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child
