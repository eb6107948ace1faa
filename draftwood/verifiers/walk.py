"""The target walk: follow the target's own tokens through the tree for as long as it has them.

Source: GOOSE, Algorithm 3, for any temperature. At each node a token is drawn from p (the argmax at
temperature 0); a child that carries it is accepted, otherwise the token is the bonus. Every
committed token is thus the target's own draw, so the output law is the target's for any tree
that was fixed before the draw. A child that was itself *sampled* may not be verified this way.
"""

from dataclasses import dataclass

from draftwood.protocols import Distributions, Noise, Verdict
from draftwood.tree import ROOT, Draw, TokenTree


@dataclass(frozen=True)
class Walk:
    """Lossless for deterministic trees, and no rule accepts more of them in expectation.

    Siblings carry distinct tokens, so the paper's "spine child first" decides nothing here.
    """

    @property
    def accepts(self) -> frozenset[Draw]:
        """Deterministic nodes only."""
        return frozenset({Draw.ONE_HOT})

    def verify(self, tree: TokenTree, p: Distributions, noise: Noise) -> Verdict:
        """Draw along one path; noise is keyed by depth, so equal seeds reproduce plain sampling."""
        node = ROOT
        path: list[int] = []
        while True:
            token = p.draw(node, noise.token(len(path)))
            child = tree.child(node, token)
            if child is None:
                return Verdict(tuple(path), token)
            path.append(child)
            node = child


PART = Walk
