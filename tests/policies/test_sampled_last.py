"""Deterministic last children of sampled nodes: the likeliest token, or the copied one."""

import numpy as np
import pytest

from draftwood.policies.sampled import Sampled
from draftwood.protocols import Continue
from draftwood.tree import Draw
from tests.factories.enumerated_draws import asked, four
from tests.factories.scripted_sources import Row, drafter, offer, paths

WOR, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.ONE_HOT


def test_the_likeliest_last() -> None:
    # The root's likeliest is 1, and 3 is drawn from the rest; below 3 comes 31, below 1 comes 11.
    sources = drafter(four, drawn={(): [3], (3,): [32], (1,): [14]})
    tree = sources.grow(Sampled(shape="2x2", last="top"), temperature=1.0)
    assert paths(tree) == [(3,), (1,), (3, 32), (1, 14), (3, 31), (1, 11)]
    assert tree.draws.tolist() == [ONE_HOT, WOR, ONE_HOT, WOR, WOR, ONE_HOT, ONE_HOT]
    assert tree.q_rows.tolist() == [-1, 0, -1, 1, 2, -1, -1]
    assert set(tree.sources[1:]) == {"draft"}
    # All on the scale of q, though what is drawn is a share of what the likeliest leaves.
    assert np.exp(tree.logq[1:]) == pytest.approx([0.15, 0.5, 0.25, 0.1, 0.5, 0.5])
    assert asked(sources) == [
        ([0], 1, ONE_HOT, []),
        ([0], 1, WOR, [{1}]),
        ([1, 2], 1, ONE_HOT, []),
        ([1, 2], 1, WOR, [{31}, {11}]),
    ]


def test_an_only_child_is_the_likeliest_and_nothing_is_drawn_beside_it() -> None:
    sources = drafter(four, drawn={(): [2]})
    tree = sources.grow(Sampled(shape="2x1", last="top"), temperature=1.0)
    assert paths(tree) == [(2,), (1,), (2, 21), (1, 11)]
    assert tree.draws.tolist() == [ONE_HOT, WOR, ONE_HOT, ONE_HOT, ONE_HOT]
    assert asked(sources)[2:] == [([1, 2], 1, ONE_HOT, [])]


def test_a_certain_child_leaves_next_to_nothing_to_the_others() -> None:
    table: dict[int, Row] = {0: [(1, 1.0), (2, 1e-30)]}
    sources = drafter(table, drawn={(): [2]})
    tree = sources.grow(Sampled(shape="2", last="top"), temperature=1.0)
    assert paths(tree) == [(2,), (1,)]
    assert -100 < tree.logq[1] < -60


def test_the_deepest_subtree_can_go_to_the_last() -> None:
    sources = drafter(four, drawn={(): [4, 3, 2], (4,): [42], (1,): [14, 13]})
    policy = Sampled(shape="sparse", last="top", deepest="last", budget=9)
    tree = sources.grow(policy, temperature=1.0)
    # Cut to nine nodes, the root's first child has three children and the second two. The likeliest
    # token, 1, is the last and gets the first child's; the first drawn, 4, the second's.
    assert paths(tree) == [(4,), (3,), (2,), (1,), (4, 42), (1, 14), (1, 13), (4, 41), (1, 11)]
    policy = Sampled(shape="sparse", last="top", budget=9)
    sources = drafter(four, drawn={(): [4, 3, 2], (4,): [44, 43], (3,): [32]})
    tree = sources.grow(policy, temperature=1.0)
    assert [path for path in paths(tree) if len(path) == 2] == [
        *[(4, 44), (4, 43), (3, 32)],
        *[(4, 41), (3, 31)],
    ]


def test_a_copied_spine_among_drawn_children() -> None:
    drawn = {(): [2], (2,): [22, 21], (7,): [74], (7, 8): [82], (7, 74): [741, 742]}
    drawn |= {(2, 22): [221, 222], (2, 21): [211, 212]}
    sources = drafter(four, offer(7, 8), drawn)
    tree = sources.grow(Sampled(shape="2x2x2", last="context"), temperature=1.0, room=3)
    assert tree.tokens.tolist()[:7] == [0, 2, 7, 22, 21, 74, 8]
    assert tree.parents.tolist()[:7] == [-1, 0, 0, 1, 1, 2, 2]
    assert tree.sources[1:7] == ("draft", "context", "draft", "draft", "draft", "context")
    assert tree.draws.tolist()[1:7] == [WOR, ONE_HOT, WOR, WOR, WOR, ONE_HOT]
    assert tree.route == "spine"
    assert np.exp(tree.logq[1:3]) == pytest.approx([0.25, 1.0])
    assert sources.asked[0] == Continue("context")
    # The copied token is kept out below the root and below 7; behind the match's end all is drawn.
    assert asked(sources) == [
        ([0], 1, WOR, [{7}]),
        ([1, 2], 2, WOR, [set(), {8}]),
        ([3, 4, 5, 6], 2, WOR, []),
    ]


def test_where_the_match_ends_its_last_node_has_drawn_children() -> None:
    drawn = {(): [2], (2,): [21, 22], (7,): [71, 72]}
    tree = drafter(four, offer(7), drawn).grow(
        Sampled(shape="2x2", last="context"), temperature=1.0
    )
    assert paths(tree) == [(2,), (7,), (2, 21), (2, 22), (7, 71), (7, 72)]
    assert tree.sources.count("context") == 1


def test_a_copied_chain_needs_no_draft_forward() -> None:
    sources = drafter(four, offer(7, 8), {(7, 8): [81]})
    tree = sources.grow(Sampled(shape="1x1x1", last="context"), temperature=1.0)
    assert paths(tree) == [(7,), (7, 8), (7, 8, 81)]
    assert tree.draws.tolist() == [ONE_HOT, ONE_HOT, ONE_HOT, WOR]
    assert asked(sources) == [([2], 1, WOR, [])]


def test_without_a_match_everything_is_drawn() -> None:
    sources = drafter(four, (), {(): [2, 1]})
    tree = sources.grow(Sampled(shape="2", last="context"), temperature=1.0)
    assert (tree.route, paths(tree)) == ("sampled", [(2,), (1,)])
    assert asked(sources) == [([0], 2, WOR, [])]


def test_a_spine_may_be_the_deepest_child() -> None:
    drawn = {(): [2, 3, 4], (7,): [71, 72], (2,): [21, 22]}
    tree = drafter(four, offer(7, 8, 9), drawn).grow(
        Sampled(shape="sparse", last="context", deepest="last", budget=9), temperature=1.0
    )
    assert [path for path in paths(tree) if len(path) == 2] == [
        *[(2, 21), (2, 22), (7, 71), (7, 72)],
        (7, 8),
    ]


def test_a_node_without_a_likeliest_child_is_not_asked_again() -> None:
    table: dict[int, Row] = {0: four(0), 1: four(1)}
    sources = drafter(table, drawn={(): [2], (1,): [12]})
    tree = sources.grow(Sampled(shape="2x2x2", last="top"), temperature=1.0)
    assert paths(tree) == [(2,), (1,), (1, 12), (1, 11)]
    assert asked(sources)[2:] == [
        ([1, 2], 1, ONE_HOT, []),
        ([2], 1, WOR, [{11}]),
        ([3, 4], 1, ONE_HOT, []),
    ]


def test_nothing_is_left_beside_the_likeliest() -> None:
    sources = drafter({0: [(1, 1.0)], 1: [(5, 1.0)]})
    tree = sources.grow(Sampled(shape="2x2", last="top"), temperature=1.0)
    assert paths(tree) == [(1,), (1, 5)]
    assert tree.draws.tolist() == [ONE_HOT] * 3
