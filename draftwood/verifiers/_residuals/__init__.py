"""What is left of p at a node once its children have been tried.

The arithmetic that the verifiers of sampled trees share. Knows nothing of which node is accepted,
and makes no random decision but the bonus.

A node v is reached with probability P(v). Its children c_1, c_2, .. were drawn in this order, c_j
from a distribution Q_j that may depend on the earlier ones. They are tried in turn::

    R = P(v) p(.|v);  W = 1
    for each child c_j:  P(c_j) = min(1, R[c_j] / (W Q_j[c_j]))       (0 where Q_j[c_j] = 0)
                         R = max(R - W Q_j, 0);  W = sum R + 1 - P(v)

This is what Algorithm 3 of "Traversal Verification for Speculative Tree Decoding" does to a node
and its children, written so that it can run from the root down. With P(v) = 1 it is recursive
rejection sampling, R / W being the residual distribution.

Q_j is q where the child was drawn with replacement, and one-hot where it was not drawn at all. R is
kept, not rebuilt from a few scalars a node: children of one node may come from several rows of q.

Without replacement it is q over the tokens that are left, divided by their sum, which is summed
anew for each child: one minus the sum of the drawn tokens loses every digit where q is peaked.

The loop stands twice. :mod:`draftwood.verifiers._residuals.batched` tries the children of many
nodes at once; :mod:`draftwood.verifiers._residuals.sequential` tries a child when it is asked
about, because most need not be.
"""

from collections.abc import Sequence
from enum import Enum

from draftwood.verifiers._residuals.batched import try_together
from draftwood.verifiers._residuals.sequential import try_in_turn
from draftwood.verifiers._residuals.siblings import (
    Siblings,
    Tested,
    bonus,
    children_of,
    judge,
    kept,
    rows_of,
)


class Mode(Enum):
    """How siblings are tried; the results are the same but for rounding."""

    TOGETHER = "together"
    IN_TURN = "in turn"


def try_children(spots: Sequence[Siblings], way: Mode | None = None) -> Sequence[Tested]:
    """Try the children of all spots, at least one.

    Args:
        spots: nodes of any trees.
        way: in which; None leaves it to where p is. On the host a call costs next to nothing and
            arithmetic counts, so that less of it wins; on a device the calls count.
    """
    p = rows_of([(spot.case.p, spot.node) for spot in spots])
    if way is None:
        way = Mode.IN_TURN if p[0].device.type == "cpu" else Mode.TOGETHER
    return try_in_turn(spots, p) if way is Mode.IN_TURN else try_together(spots, p)


__all__ = ["Mode", "Siblings", "Tested", "bonus", "children_of", "judge", "kept", "try_children"]
