"""The sibling test that verifiers of sampled trees share, and the residual that it leaves of p.

A node v is reached with probability P(v). Its children c_1, c_2, .. were drawn in this order, c_j
from a distribution Q_j that may depend on the earlier ones. The test goes through them in order::

    R = P(v) p(.|v);  W = 1
    for each child c_j:  P(c_j) = min(1, R[c_j] / (W Q_j[c_j]))       (0 where Q_j[c_j] = 0)
                         R = max(R - W Q_j, 0);  W = sum R + 1 - P(v)

This is the treatment of a node and its children in Algorithm 3 of "Traversal Verification for
Speculative Tree Decoding", written so that it can run from the root down. With P(v) = 1 it is
recursive rejection sampling, and R / W is the residual distribution.

Q_j is q if the child was drawn with replacement, and one-hot if it was not sampled. Without
replacement Q_j is q over the remaining tokens, divided by their sum. The sum is computed for each
child: one minus the sum of the drawn tokens loses all digits if q is peaked. R is stored, because
children of one node may come from several rows of q.

The loop is written twice. :mod:`draftwood.verifiers._residuals.batched` tests the children of many
nodes at once. :mod:`draftwood.verifiers._residuals.sequential` tests a child when its result is
needed, because most are not.
"""

from collections.abc import Sequence
from enum import Enum

from draftwood.verifiers._residuals.batched import try_batched
from draftwood.verifiers._residuals.sequential import try_sequentially
from draftwood.verifiers._residuals.siblings import (
    Siblings,
    Tested,
    bonus,
    children_of,
    judge,
    keep_probability,
    rows_of,
)


class Mode(Enum):
    """How siblings are tested; the results differ by rounding only."""

    BATCHED = "batched"
    SEQUENTIAL = "sequential"


def try_children(groups: Sequence[Siblings], mode: Mode | None = None) -> Sequence[Tested]:
    """Test the children of several nodes.

    Args:
        groups: one or more nodes of any trees.
        mode: by default sequential if p is on the CPU, where arithmetic costs most, and batched on
            a GPU, where calls do.
    """
    p = rows_of([(siblings.case.p, siblings.node) for siblings in groups])
    if mode is None:
        mode = Mode.SEQUENTIAL if p[0].device.type == "cpu" else Mode.BATCHED
    return try_sequentially(groups, p) if mode is Mode.SEQUENTIAL else try_batched(groups, p)


__all__ = [
    "Mode",
    "Siblings",
    "Tested",
    "bonus",
    "children_of",
    "judge",
    "keep_probability",
    "try_children",
]
