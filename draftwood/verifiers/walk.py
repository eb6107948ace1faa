"""The target walk: follows the target's own tokens through the tree.

Source: GOOSE, Algorithm 3, for any temperature. At each node a token is drawn from p (the argmax at
temperature 0). A child with this token is accepted; otherwise the token is the bonus. So every
committed token is the target's own draw, and the output law is the target's for any tree that was
fixed before the draw. Trees with sampled children are left to verifiers that accept more of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT, Draw


@dataclass(frozen=True)
class Walk:
    """Lossless for every tree, because only the target's own tokens are committed.

    On deterministic and coupled trees no rule accepts more in expectation. Siblings have distinct
    tokens, so the paper's "spine child first" changes nothing here.
    """

    accepts: ClassVar = frozenset({Draw.ONE_HOT, Draw.COUPLED})
    branching: ClassVar = True

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Draw along one path of each tree; equal seeds reproduce plain sampling."""
        return [walk(case) for case in cases]


def walk(case: Verification) -> Verdict:
    """Follow the target's draws, keyed by position, while the tree has a child with the token."""
    node = ROOT
    path: list[int] = []
    while True:
        token = case.p.draw(node, case.noise)
        child = case.tree.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child


PART = Walk
