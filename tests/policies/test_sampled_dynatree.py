"""Sampled DynaTree: how many children are drawn, which are expanded, and DynaTree when greedy."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies.dynatree import DynaTree, DynaTreeState
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw, tree_of
from tests.factories.enumerated_draws import Dice, asked, expansions
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    outcome,
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


def test_depth_by_path_probability() -> None:
    sure = drafter(lambda token: [(token + 1, 0.9), (0, 0.1)])
    sure.drawn = {tuple(range(1, n)): [n] for n in range(1, 12)}
    # .9 ** 6 = .531 exceeds rho_deep, .9 ** 7 = .478 does not.
    assert sure.grow(DynaTree(children="drawn"), temperature=1.0).depth == 7
    assert sure.grow(DynaTree(children="drawn"), temperature=1.0, room=3).depth == 3
    assert (
        sure.grow(DynaTree(children="drawn", depth="fixed", base_depth=3), temperature=1.0).depth
        == 3
    )
    assert (
        sure.grow(
            DynaTree(children="drawn"), state=DynaTreeState((), 8.5, 0.9), temperature=1
        ).depth
        == 9
    )


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


def test_the_budget_goes_to_the_first_in_breadth_first_order() -> None:
    sources = drafter(TABLE, drawn={(): [2, 4, 1], (2,): [23, 21], (4,): [43], (1,): [12]})
    tree = sources.grow(DynaTree(children="drawn"), temperature=1.0, budget=5)
    assert paths(tree) == [(2,), (4,), (1,), (2, 23), (2, 21)]
    assert asked(sources)[2:] == [([1, 2, 3], 2, ONE_HOT, []), ([1], 2, WOR, [])]


def test_with_replacement() -> None:
    sources = drafter(TABLE, drawn={(): [2, 2, 2], (2,): [21, 21]})
    tree = sources.grow(DynaTree(children="drawn", replacement=True), temperature=1.0, room=2)
    assert tree.tokens.tolist() == [0, 2, 2, 2, *[21] * 6]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert set(tree.draws.tolist()[1:]) == {IID}


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
    budget=st.integers(0, 59),
    room=st.integers(0, 9),
    last=st.sampled_from(["none", "top"]),
)
def test_a_greedy_request_gets_dynatrees_tree(
    seed: int, settings: dict[str, Any], budget: int, room: int, last: Any
) -> None:
    table = distributions(seed, vocab=15, most=6)
    expected = drafter(table).grow(DynaTree(**settings), budget=budget, room=room)
    ours = DynaTree(children="drawn", **settings, last=last)
    tree = drafter(table).grow(ours, budget=budget, room=room)
    assert paths(tree) == paths(expected)
    assert tree.logq.tolist() == expected.logq.tolist()


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


def test_history_is_dynatrees() -> None:
    ours, theirs = DynaTree(children="drawn", window=3), DynaTree(window=3)
    state, other = ours.start(), theirs.start()
    chain = tree_of(range(5), range(-1, 4), "draft")
    for path in ((1, 2, 3, 4), (), (1, 2), (1,)):
        state = ours.learn(state, outcome(chain, *path))
        other = theirs.learn(other, outcome(chain, *path))
        assert (state.recent, state.base_depth, state.tau_high) == (
            other.recent,
            other.base_depth,
            other.tau_high,
        )
    assert state.recent == (0.0, 0.5, 0.25)
    # After 1: .3 more; after the mean of 1 and 0: .2 less; then (.5 - .7) and (.25 - .7).
    assert state.base_depth == pytest.approx(6 + 0.3 - 0.2 - 0.2 - 0.45)
    assert state.tau_high == pytest.approx(0.9 - 0.05 * (0.3 - 0.2 - 0.2 - 0.45))


def test_no_evidence_and_no_history() -> None:
    plain = drafter({}).grow(DynaTree(children="drawn"), temperature=1.0)
    assert plain.route == "plain"
    start = DynaTree(children="drawn").start()
    assert DynaTree(children="drawn").learn(start, outcome(plain)) == start
    chain = tree_of(range(5), range(-1, 4), "draft")
    assert DynaTree(children="drawn", history=False).learn(start, outcome(chain, 1)) == start


@pytest.mark.parametrize("limit", [{"budget": 0}, {"room": 0}, {"room": -1}])
def test_nothing_to_draft_asks_nothing(limit: dict[str, Any]) -> None:
    sources = drafter(TABLE)
    for temperature in (0.0, 1.0):
        tree = sources.grow(DynaTree(children="drawn"), temperature=temperature, **limit)
        assert tree.route == "plain"
    assert sources.asked == []


def test_what_it_declares() -> None:
    policy = DynaTree(children="drawn", source="head")
    assert policy.sources == ("head",)
    assert policy.draws == {ONE_HOT, WOR}
    assert replace(policy, replacement=True).draws == {ONE_HOT, IID}
    assert policy.branching
    chain = DynaTree(children="drawn", b_mid=1, b_max=1)
    assert not chain.branching
    assert chain.draws == {ONE_HOT, WOR}
    assert replace(chain, last="top").draws == {ONE_HOT}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tau_low": 0.9}, "tau_low = 0.9, tau_high = 0.9"),
        ({"base_depth": 9}, "base_depth = 9, max_depth = 9"),
        ({"rho_deep": 0.05}, "rho_deep = 0.05"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        DynaTree(children="drawn", **wrong)
