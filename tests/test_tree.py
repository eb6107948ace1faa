"""Trees: what a builder appends, what it refuses, and who is whose ancestor."""

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.tree import ROOT_SOURCE, Draw, TokenTree, TreeBuilder, tree_of


def a_tree() -> TokenTree:
    #        9
    #      /   \
    #     5     6
    #    / \     \
    #   6   7     5
    return tree_of([9, 5, 6, 6, 7, 5], [-1, 0, 0, 1, 1, 2])


def test_the_builder_keeps_what_it_is_given() -> None:
    builder = TreeBuilder(9)
    first = builder.add(0, 5, "table", logq=-0.5)
    last = builder.add_chain([6, 7], "copy", parent=first)
    tree = builder.build("spine")
    assert (first, last) == (1, 3)
    assert tree.tokens.tolist() == [9, 5, 6, 7]
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert tree.depths.tolist() == [0, 1, 2, 3]
    assert tree.logq.tolist() == [0.0, -0.5, 0.0, 0.0]
    assert tree.sources == (ROOT_SOURCE, "table", "copy", "copy")
    assert tree.route == "spine"
    assert (len(tree), tree.drafted, tree.depth) == (4, 3, 3)
    assert tree.tokens.dtype == np.int64
    assert tree.logq.dtype == np.float32


def test_a_deterministic_child_is_appended_once() -> None:
    builder = TreeBuilder(1)
    assert builder.add(0, 4, "a") == 1
    assert builder.add(0, 4, "b") == 1
    assert builder.add(1, 4, "b") == 2
    assert builder.sources == [ROOT_SOURCE, "a", "b"]
    assert (builder.child(0, 4), builder.child(1, 4), builder.child(2, 4)) == (1, 2, None)


def test_a_token_drawn_with_replacement_may_repeat() -> None:
    builder = TreeBuilder(1)
    assert builder.add(0, 4, "q", draw=Draw.IID, q_row=7) == 1
    assert builder.add(0, 4, "q", draw=Draw.IID, q_row=7) == 2
    tree = builder.build()
    assert tree.draws.tolist() == [Draw.ONE_HOT, Draw.IID, Draw.IID]
    assert tree.q_rows.tolist() == [-1, 7, 7]
    assert builder.child(0, 4) == tree.child(0, 4) == 1  # the first drawn


def test_children_and_paths() -> None:
    tree = a_tree()
    assert tree.child(0, 6) == 2
    assert tree.child(1, 6) == 3
    assert tree.child(2, 6) is None
    assert tree.path(0) == ()
    assert tree.path(4) == (1, 4)
    assert tree.path_tokens(4) == (5, 7)


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [
        ([], []),
        ([1, 2], [-1]),
        ([1, 2], [0, 0]),
        ([1, 2], [-1, 1]),
        ([1, 2], [-1, -1]),
        ([1, 2, 2], [-1, 0, 0]),
    ],
)
def test_malformed_trees_are_refused(tokens: list[int], parents: list[int]) -> None:
    with pytest.raises(DraftwoodError):
        tree_of(tokens, parents)
