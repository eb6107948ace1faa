"""Trees of a fixed number of nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.integrations.engines import packed
from draftwood.tree import TreeBuilder, tree_of


@given(st.lists(st.integers(0, 10**6), max_size=12), st.integers(0, 5))
def test_the_mask_is_that_of_the_tree_and_the_rest_is_detached(draws: list[int], more: int) -> None:
    builder = TreeBuilder(7)
    for draw in draws:
        builder.add(draw % len(builder), draw // 7 % 9, "given")
    tree = builder.build()
    found = packed(tree, len(tree) + more)
    assert found.nodes == len(tree)
    assert found.tokens.dtype == np.int64
    assert found.tokens[: len(tree)].tolist() == tree.tokens.tolist()
    for node in range(len(tree)):
        ancestors = {0, node, *tree.path(node)}
        assert set(np.flatnonzero(found.mask[node])) == ancestors
    assert (found.mask[len(tree) :] == np.eye(len(tree) + more, dtype=bool)[len(tree) :]).all()
    assert not found.mask[: len(tree), len(tree) :].any(), "nobody sees a detached node"
    # An engine reads the depth of a node, and so its position, from its row.
    assert found.mask.sum(1)[: len(tree)].tolist() == (tree.depths + 1).tolist()


def test_a_tree_that_is_too_large_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="a tree of 3 nodes does not fit in 2"):
        packed(tree_of([1, 2, 3], [-1, 0, 1]), 2)


def test_twins_are_refused() -> None:
    from draftwood.tree import Draw

    builder = TreeBuilder(1)
    builder.add(0, 5, "given", draw=Draw.IID)
    builder.add(0, 5, "given", draw=Draw.IID)
    with pytest.raises(DraftwoodError, match="two siblings have the same token"):
        packed(builder.build(), 8)
