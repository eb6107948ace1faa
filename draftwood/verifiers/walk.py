"""The target walk: follow the target's own tokens through the tree for as long as it has them.

Source: GOOSE, Algorithm 3, for any temperature. At each node a token is drawn from p (the argmax at
temperature 0); a child that carries it is accepted, otherwise the token is the bonus. Every
committed token is thus the target's own draw, so the output law is the target's for any tree
that was fixed before the draw. Sampled children are left to the rules that use how they were drawn
to accept more of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Verdict, Verification
from draftwood.tree import Draw
from draftwood.verifiers._walk import walk


@dataclass(frozen=True)
class Walk:
    """Lossless for every tree, as nothing but the target's own tokens is committed; of those that
    were not drawn with numbers of their own no rule accepts more in expectation.

    Siblings carry distinct tokens, so the paper's "spine child first" decides nothing here.
    """

    accepts: ClassVar = frozenset({Draw.ONE_HOT, Draw.COUPLED})
    branching: ClassVar = True

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Draw along one path of each tree; equal seeds reproduce plain sampling."""
        return [walk(case) for case in cases]


PART = Walk
