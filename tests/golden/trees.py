"""A golden case's tree as a token tree with distributions."""

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import without
from draftwood.lab.lossless.enumeration import DraftedTree
from draftwood.lab.lossless.tiny import Row
from draftwood.tree import ROOT, Draw, TreeBuilder
from tests.golden.cases import GoldenCase
from tests.golden.proposed import SOURCE, ProposedRows, with_distributions

SAME = 1e-9
"""Largest difference between two copies of one row, written with fewer digits."""


def tree_from_golden(
    case: GoldenCase, dtype: torch.dtype, certain: Draw
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
    proposed = ProposedRows(dtype)
    builder = TreeBuilder(0)
    numbers = [ROOT]
    tree = case.record.tree
    for node, number in enumerate(numbers):  # the loop appends to `numbers`
        group: Row | None = None
        handle, drawn = -1, set[int]()
        for child in tree.children_in_verification_order[number]:
            q, token = case.proposals[child], tree.token[child]
            assert q is not None
            draw, row = Draw.IID, -1
            if group is not None and np.allclose(q, without(group, drawn), rtol=0, atol=SAME):
                draw, row = Draw.WITHOUT_REPLACEMENT, handle
            elif q[token] == 1:
                draw = certain
                row = -1 if certain is Draw.ONE_HOT else proposed.handle(q)
            elif group is None:
                group, handle = q, proposed.handle(q)
                draw, row = Draw.WITHOUT_REPLACEMENT, handle
            else:
                row = proposed.handle(q)
            if draw is Draw.WITHOUT_REPLACEMENT:
                drawn.add(token)
            if builder.add(node, token, SOURCE, draw=draw, q_row=row) != len(numbers):
                raise DraftwoodError(
                    f"case {case.record.name}: node {child} was not drawn and repeats a sibling's "
                    "token"
                )
            numbers.append(child)
    return with_distributions(builder.build(), case.p, proposed), numbers
