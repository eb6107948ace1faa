"""Trees: what a builder appends, what it refuses, and who is whose ancestor."""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.tree import ROOT, ROOT_SOURCE, Draw, TokenTree, TreeBuilder, tree_of


def a_tree() -> TokenTree:
    #        9
    #      /   \
    #     5     6
    #    / \     \
    #   6   7     5
    return tree_of([9, 5, 6, 6, 7, 5], [-1, 0, 0, 1, 1, 2])


def test_the_builder_stores_nodes_as_given() -> None:
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


def test_a_tree_without_drafted_nodes_is_like_any_other() -> None:
    builder = TreeBuilder(7)
    alone = builder.build("plain")
    builder.add(ROOT, 3, "a")
    whole = builder.build("plain")
    for name in ("tokens", "parents", "depths", "logq", "draws", "q_rows"):
        found, root = getattr(alone, name), getattr(whole, name)[:1]
        assert found.dtype == root.dtype
        assert found.tolist() == root.tolist()
    assert (alone.sources, alone.route) == (whole.sources[:1], "plain")
    assert (alone.drafted, alone.depth, alone.child(ROOT, 3)) == (0, 0, None)
    assert builder.part([], "none").route == "none"


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


@given(seed=st.integers(0, 10**6))
def test_extend_equals_adding_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    one, many = TreeBuilder(7), TreeBuilder(7)
    for _ in range(rng.randint(0, 4)):
        places = [(node, token) for node in range(len(one)) for token in range(4)]
        free = [(node, token) for node, token in places if one.child(node, token) is None]
        new = rng.sample(free, rng.randint(0, len(free)))
        indices = [one.add(node, token, "x") for node, token in new]
        found = many.extend([node for node, _ in new], [token for _, token in new], "x")
        assert list(found) == indices
    assert_same(one.build("a"), many.build("a"))
    for node in range(len(one)):
        assert [many.child(node, t) for t in range(4)] == [one.child(node, t) for t in range(4)]


@given(seed=st.integers(0, 10**6))
def test_part_is_the_tree_of_some_nodes(seed: int) -> None:
    rng = random.Random(seed)
    whole = TreeBuilder(7)
    for i in range(rng.randint(0, 12)):
        whole.add(
            rng.randrange(len(whole)), 10 + i, f"s{i % 2}", logq=-i, draw=Draw(i % 2), q_row=i
        )
    nodes: list[int] = []
    for node in range(1, len(whole)):
        if rng.random() < 0.7 and whole.parents[node] in (ROOT, *nodes):
            nodes.append(node)
    tree = whole.part(nodes, "b")
    expected, places = TreeBuilder(7), {ROOT: ROOT}
    for node in nodes:
        places[node] = expected.add(
            places[whole.parents[node]],
            whole.tokens[node],
            whole.sources[node],
            logq=whole.logq[node],
            draw=Draw(whole.draws[node]),
            q_row=whole.q_rows[node],
        )
    assert_same(tree, expected.build("b"))


def assert_same(one: TokenTree, other: TokenTree) -> None:
    for each in fields(TokenTree):
        found, expected = getattr(one, each.name), getattr(other, each.name)
        if isinstance(found, np.ndarray):
            assert found.dtype == expected.dtype
            assert found.tolist() == expected.tolist()
        else:
            assert found == expected
