"""Sampled DynaTree: how many children are drawn, which are expanded, and DynaTree when greedy."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.dynatree import DynaTree
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw
from tests.factories.enumerated_draws import Dice, asked, expansions
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    paths,
)

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT
# The root is unsure (.35 < .4), 1 is sure (.95 >= .9), 2 in between, 4 in between.
TABLE: dict[int, Row] = {
    0: [(1, 0.35), (2, 0.3), (3, 0.2), (4, 0.15)],
    1: [(11, 0.95), (12, 0.05)],
    2: [(21, 0.5), (22, 0.3), (23, 0.2)],
    4: [(41, 0.5), (42, 0.3), (43, 0.2)],
    12: [(121, 1.0)],
}


def test_by_hand() -> None:
    # Three children of the root: 2 (.3), 4 (.15) and 1 (.35), all above rho_stop = .1. Two of 2,
    # as .3 * .3 = .09 passes tau = .05; one of 4, whose second would have .15 * .3 = .045; and one
    # of 1. 12 comes out, with .35 * .05 = .0175: it stays, under tau as it is, and is a leaf.
    drawn = {(): [2, 4, 1], (2,): [23, 21], (4,): [43], (1,): [12]}
    sources = drafter(TABLE, drawn=drawn)
    noise = RequestNoise(3)
    tree = sources.grow(DynaTree(children="drawn"), temperature=0.8, noise=noise)
    assert paths(tree) == [(2,), (4,), (1,), (2, 23), (2, 21), (4, 43), (1, 12)]
    assert math.exp(tree.logq[7]) == pytest.approx(0.05)
    assert asked(sources) == [
        ([0], 3, ONE_HOT, []),
        ([0], 3, WOR, []),
        ([1, 2, 3], 3, ONE_HOT, []),
        ([1, 2, 3], 2, WOR, []),
        ([5], 3, ONE_HOT, []),  # 21 has .15; 23 .06, 43 .03 and 12 .0175 are under rho_stop
    ]
    assert tree.q_rows.tolist() == [-1, 0, 0, 0, 1, 1, 2, 3]
    assert set(tree.draws.tolist()[1:]) == {WOR}
    assert tree.route == "dynatree"
    assert {q.temperature for q in expansions(sources)} == {0.8}
    assert [q.noise for q in expansions(sources)][1:4:2] == [noise] * 2


def test_the_likeliest_last() -> None:
    drawn = {(): [4, 2], (2,): [22]}
    sources = drafter(TABLE, drawn=drawn)
    tree = sources.grow(DynaTree(children="drawn", last="top"), temperature=1.0, room=2)
    # 4 and 1 have one child each, which is the likeliest.
    assert paths(tree) == [(4,), (2,), (1,), (2, 22), (4, 41), (2, 21), (1, 11)]
    assert tree.draws.tolist()[1:] == [WOR, WOR, ONE_HOT, WOR, ONE_HOT, ONE_HOT, ONE_HOT]
    assert [math.exp(x) for x in tree.logq[1:4]] == pytest.approx([0.15, 0.3, 0.35])
    assert asked(sources) == [
        ([0], 3, ONE_HOT, []),
        ([0], 2, WOR, [{1}]),
        ([1, 2, 3], 3, ONE_HOT, []),
        ([2], 1, WOR, [{21}]),
    ]


def test_where_every_child_would_be_pruned_none_is_drawn() -> None:
    # All of 4's children are under tau: .15 * .3 = .045.
    table = TABLE | {4: [(41, 0.3), (42, 0.3), (43, 0.2), (44, 0.2)]}
    drawn = {(): [4, 3, 1], (1,): [11], (4,): [44, 43, 42]}
    sources = drafter(table, drawn=drawn)
    tree = sources.grow(DynaTree(children="drawn"), temperature=1.0, room=2)
    assert paths(tree) == [(4,), (3,), (1,), (1, 11)]
    assert asked(sources)[2:] == [([1, 2, 3], 3, ONE_HOT, []), ([3], 1, WOR, [])]
    tree = sources.grow(DynaTree(children="drawn", prune=False), temperature=1.0, room=2)
    assert paths(tree) == [(4,), (3,), (1,), (4, 44), (4, 43), (4, 42), (1, 11)]


POLICIES = {
    "b_max": st.integers(2, 4),
    "base_depth": st.integers(2, 3),
    "max_depth": st.integers(4, 6),
    "rho_stop": st.sampled_from([0.0213, 0.1013]),
    "rho_deep": st.sampled_from([0.1517, 0.4987]),
    "tau": st.sampled_from([0.0, 0.0497, 0.1509]),
    "breadth": st.sampled_from(["adaptive", "fixed"]),
    "prune": st.booleans(),
}


@given(
    seed=st.integers(0, 10**6),
    settings=st.fixed_dictionaries(POLICIES),
    budget=st.integers(-1, 59),
    room=st.integers(-1, 9),
    last=st.sampled_from(["none", "top"]),
)
def test_every_node_has_as_many_children_as_the_gates_allow(
    seed: int, settings: dict[str, Any], budget: int, room: int, last: Any
) -> None:
    table = distributions(seed, vocab=15, most=6)
    policy = DynaTree(children="drawn", **settings, last=last)
    sources = Dice((), table, ranking="draft")
    tree = sources.grow(policy, budget=budget, room=room, temperature=1.0)
    check_shape(tree, budget, room)
    log = {0: 0.0}
    for node in range(1, len(tree)):
        log[node] = log[int(tree.parents[node])] + float(tree.logq[node])
    for node in sorted(log, key=lambda node: tree.depths[node]):
        row, depth = table[int(tree.tokens[node])], int(tree.depths[node])
        p, c = math.exp(log[node]), max((q for _, q in row), default=0.0)
        deep = depth < policy.base_depth or p > policy.rho_deep
        open_ = depth == 0 or (depth < policy.max_depth and p >= policy.rho_stop and deep)
        width = policy.b_mid
        if policy.breadth == "adaptive":
            width = policy.b_min if c >= 0.9 else policy.b_max if c < 0.4 else policy.b_mid
        likely = [q for _, q in row[:width] if not policy.prune or p * q >= policy.tau]
        expected = len(likely) if open_ and depth < room else 0
        found = int((tree.parents == node).sum())
        if found != expected:
            assert found < expected
            assert tree.drafted == max(budget, 0)
