"""Token trees with given distributions, as verifiers take them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDistributions, without
from draftwood.lab.lossless.enumeration import DraftedTree
from draftwood.lab.lossless.tiny import Law, Row
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from tests.golden.verification_records import WorkedCase, law_of

SOURCE = "draft"
SAME = 1e-9
"""Largest difference between two copies of one row, written with fewer digits."""


@dataclass(eq=False)
class ProposedRows:
    """Rows of q by handle."""

    rows: list[Row] = field(default_factory=list)

    def handle(self, q: Row) -> int:
        """The handle of q, the same for equal rows."""
        for handle, row in enumerate(self.rows):
            if np.array_equal(row, q):
                return handle
        self.rows.append(q)
        return len(self.rows) - 1

    def drafted(self, tree: TokenTree, p: Law, dtype: torch.dtype) -> DraftedTree:
        """A tree with its distributions; ``p`` is given by the tokens below the root."""
        target = CannedDistributions(p, tree, (), dtype, greedy=False)
        return DraftedTree(tree, target, TreeRows(tree, self.rows, dtype))


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows of q by node: a :class:`draftwood.protocols.Proposals`."""

    tree: TokenTree
    rows: Sequence[Row]
    dtype: torch.dtype

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as ``[n, V]``, earlier siblings still in."""
        rows = [self.rows[self.tree.q_rows[node]] for node in nodes]
        return torch.tensor(np.stack(rows), dtype=self.dtype)


def explicit_tree(
    case: WorkedCase, dtype: torch.dtype, certain: Draw
) -> tuple[DraftedTree, list[int]]:
    """Tree of a case, siblings in order of verification, and the file's number of each node.

    A child counts as drawn without replacement if its Q is the residual of its siblings of that
    kind, else as drawn from its Q with replacement.

    Args:
        case: as read.
        dtype: of p and q.
        certain: kind of a child whose Q is one-hot; ``IID`` if the child is drawn from that Q.

    Raises:
        DraftwoodError: a child that was not drawn repeats a sibling's token.
    """
    proposed = ProposedRows()
    builder = TreeBuilder(0)
    numbers = [ROOT]
    for node, number in enumerate(numbers):  # the loop appends to `numbers`
        group: Row | None = None
        drawn = set[int]()
        for child in case.tree.children_in_verification_order[number]:
            q, token = np.array(case.tree.proposal_Q[child]), case.tree.token[child]
            draw, row = Draw.IID, q
            if group is not None and np.allclose(q, without(group, drawn), rtol=0, atol=SAME):
                draw, row = Draw.WITHOUT_REPLACEMENT, group
            elif q[token] == 1:
                draw = certain
            elif group is None:
                draw, group = Draw.WITHOUT_REPLACEMENT, q
            if draw is Draw.WITHOUT_REPLACEMENT:
                drawn.add(token)
            handle = -1 if draw is Draw.ONE_HOT else proposed.handle(row)
            if builder.add(node, token, SOURCE, draw=draw, q_row=handle) != len(numbers):
                raise DraftwoodError(
                    f"case {case.name}: node {child} was not drawn and repeats a sibling's token"
                )
            numbers.append(child)
    return proposed.drafted(builder.build(), law_of(case.Mb), dtype), numbers
