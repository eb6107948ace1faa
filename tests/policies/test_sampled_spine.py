"""The sampled spine tree: order, shares, exclusions, leaves, routes, and GOOSE's when greedy."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies._spine import SpineState
from draftwood.policies.sampled_spine import SampledSpine
from draftwood.policies.spine import Spine
from draftwood.protocols import Continue
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw
from tests.factories.enumerated_draws import Dice, asked, expansions, four
from tests.factories.scripted_sources import (
    Row,
    Sources,
    check_shape,
    drafter,
    offer,
    paths,
)

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT
TREE = SampledSpine(bypass="off", ratio=0.3)


def plenty(token: int) -> Row:
    """Twenty successors."""
    return [(100 * token + i, 0.5**i) for i in range(1, 21)]


def test_by_hand() -> None:
    # B = 11: three spine nodes, floor(7 * .5) = 3 root branches, 4 for the spine's nodes by 1 : 1/2
    # : 1/3 of 11/6, i.e. 2, 1, 0. One node is left, for the first leaf of all, 4.
    drawn = {(): [4, 1, 2], (7,): [72, 74], (7, 73): [732], (4,): [43]}
    sources = drafter(four, offer(7, 73, 731), drawn)
    noise = RequestNoise(3)
    tree = sources.grow(TREE, budget=10, temperature=0.8, noise=noise)
    assert paths(tree) == [
        *[(4,), (1,), (2,), (7,)],
        *[(7, 72), (7, 74), (4, 43), (7, 73)],
        *[(7, 73, 732), (7, 73, 731)],
    ]
    assert tree.sources[1:] == (
        *["draft"] * 3,
        "context",
        *["draft"] * 3,
        "context",
        "draft",
        "context",
    )
    spine = [4, 8, 10]
    assert [i for i in range(1, 11) if tree.draws[i] == ONE_HOT] == spine
    assert [int(tree.parents[i]) for i in spine] == [0, 4, 8]
    assert tree.q_rows.tolist() == [-1, 0, 0, 0, -1, 1, 1, 3, -1, 2, -1]
    # Kept out are the spine's tokens; below its last node nothing is. 7 is none of the root's four.
    assert sources.asked[0] == Continue("context")
    assert asked(sources) == [
        ([0, 1, 2], 3, WOR, [{7}, {73}, {731}]),
        ([4], 1, WOR, []),
    ]
    assert [math.exp(x) for x in tree.logq[[1, 5, 4]]] == pytest.approx([0.1, 0.25 / 0.85, 1.0])
    assert tree.route == "spine"
    assert {q.temperature for q in expansions(sources)} == {0.8}
    assert all(q.noise is noise for q in expansions(sources))


def test_leaves_are_served_in_order_by_their_share_of_the_best_sibling() -> None:
    # Without a match: B = 18, floor(17 * .5) = 8 root branches, 4 of them there. Of 17, 13 are
    # left for leaves: 2 (.25, half of the best) gets round(4 * .5) = 2 of K = 4, 1 gets 4, 4 (.1)
    # gets round(.8) = 1, 3 gets round(1.2) = 1. All below them are leaves, too; 21 gets the rest.
    drawn = {(): [2, 1, 4, 3], (2,): [22, 21], (1,): [14, 13, 12, 11], (4,): [44], (3,): [31]}
    drawn |= {(2, 22): [221, 222], (2, 21): [211, 212, 213, 214]}
    sources = drafter(four, drawn=drawn)
    tree = sources.grow(replace(TREE, top_k=4), budget=17, temperature=1.0)
    assert [path for path in paths(tree) if len(path) == 2] == [
        *[(2, 22), (2, 21)],
        *[(1, 14), (1, 13), (1, 12), (1, 11)],
        *[(4, 44), (3, 31)],
    ]
    # 22 has half of 21's share, so two of the five that are left, and 21 the other three.
    assert [path for path in paths(tree) if len(path) == 3] == [
        *[(2, 22, 221), (2, 22, 222)],
        *[(2, 21, 211), (2, 21, 212), (2, 21, 213)],
    ]
    assert asked(sources) == [
        ([0], 4, WOR, []),
        ([1, 2, 3, 4], 4, WOR, []),
        ([5, 6], 3, WOR, []),
    ]
    assert tree.route == "transition"


def test_what_a_node_cannot_give_is_given_to_others() -> None:
    drawn = {(): [2, 1, 4, 3], (2,): [22, 21], (1,): [14], (1, 14): [141]}
    sources = drafter(four, drawn=drawn)
    tree = sources.grow(replace(TREE, top_k=4), budget=17, temperature=1.0)
    assert {(2, 22), (2, 21), (1, 14), (1, 14, 141)} <= set(paths(tree))
    # 10 are left when the first four have been asked; 22 and 21 give none of their 2 and 4.
    assert asked(sources)[2] == ([5, 6, 7], 4, WOR, [])


def test_one_query_for_the_root_and_the_spine() -> None:
    sources = Dice(offer(*range(1, 21)), plenty, ranking="draft")
    tree = sources.grow(TREE, temperature=1.0)
    assert tree.drafted == 59
    # 18 spine nodes, 20 root branches of which K = 10, and 6, 3, 2, 1, 1, 1 below the spine's nodes
    assert asked(sources)[0][:2] == ([0, 1, 2, 3, 4, 5, 6], 10)
    assert tree.sources.count("context") == 18
    assert [int((tree.parents == 0).sum())] == [11]
    assert len(asked(sources)) == 2


def test_branches_stop_at_max_depth_below_their_branching_point_and_at_room() -> None:
    one = Dice((), lambda token: [(token + 1, 1.0)], ranking="draft")
    assert one.grow(replace(TREE, max_depth=4), temperature=1.0).depth == 4
    assert one.grow(TREE, temperature=1.0, room=3).depth == 3
    two = Dice(offer(1, 2, 3), lambda token: [(token + 100, 1.0)], ranking="draft")
    tree = two.grow(replace(TREE, max_depth=2), temperature=1.0)
    assert tree.depth == 5
    assert two.grow(TREE, temperature=1.0, room=2).depth == 2


def test_routes() -> None:
    strong = offer(1, 2, 3, count=2)

    def route(offers: Any = (), table: Any = four, policy: Any = None, **limits: Any) -> str:
        sources = Dice(offers, table, ranking="draft")
        limits = {"temperature": 1.0} | limits
        return sources.grow(policy or SampledSpine(), **limits).route

    assert route(strong) == "bypass"
    assert route(strong, policy=TREE) == "spine"
    assert route(offer(1, 2, 3)) == "spine"
    assert route() == "transition"
    assert route(offer(1, 2, 3), {}) == "chain"
    assert route((), {}) == "plain"
    assert route(strong, budget=0) == route(strong, room=0) == "plain"
    assert route(strong, policy=SampledSpine(budget=0)) == "plain"
    assert route((), policy=SampledSpine(rho=1.0)) == "plain"


def test_a_bypass_asks_for_nothing_to_be_drawn() -> None:
    sources = drafter(four, offer(*range(1, 31), match_length=20))
    tree = sources.grow(SampledSpine(budget=25), temperature=1.0)
    assert tree.path_tokens(25) == tuple(range(1, 26))
    assert asked(sources) == []
    assert sources.grow(SampledSpine(), room=4, temperature=1.0).path_tokens(4) == (1, 2, 3, 4)


def test_without_branches_the_whole_chain_is_kept() -> None:
    sources = drafter({}, offer(*range(1, 21)))
    tree = sources.grow(TREE, state=SpineState(0.1), temperature=1.0)
    assert tree.path_tokens(20) == tuple(range(1, 21))
    assert tree.route == "chain"


@given(
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 400), max_size=12),
    budget=st.integers(0, 40),
    room=st.integers(0, 9),
    rho=st.sampled_from([0.0, 0.5, 0.8]),
    ratio=st.sampled_from([0.0, 0.2, 0.6]),
)
def test_a_greedy_request_gets_gooses_tree(
    seed: int, chain: list[int], budget: int, room: int, rho: float, ratio: float
) -> None:
    def table(token: int) -> Row:
        return [(20 * token + i + 1, 0.6**i * (1 + seed % 7) / 20) for i in range(10)]

    # Every leaf has as many successors as its share: where it has fewer, the shares differ.
    rule: dict[str, Any] = {"rho": rho, "ratio": ratio, "top_k": 9, "min_score": 0.0}
    ours = SampledSpine(bypass="off", **rule)
    theirs = Spine(bypass="off", chain="context", branches="draft", **rule)
    offers = offer(*chain) if chain else ()
    expected = Sources(offers, table, ranking="draft").grow(theirs, budget=budget, room=room)
    tree = Sources(offers, table, ranking="draft").grow(ours, budget=budget, room=room)
    assert tree.route == expected.route
    # Where the ranked tree loses a candidate to the spine, this one has the next best instead.
    if all(after not in dict(table(before)) for before, after in pairwise([0, *chain])):
        assert sorted(paths(tree)) == sorted(paths(expected))


def test_only_what_is_drawn_may_be_unlikely() -> None:
    def row(token: int) -> Row:
        return [(20 * token + 1, 0.6), (20 * token + 2, 0.009)]

    greedy = drafter(row).grow(TREE, budget=12)
    assert {int(t) % 20 for t in greedy.tokens[1:]} == {1}
    drawn = drafter(row, drawn={(): [2, 1]}).grow(TREE, budget=12, temperature=1.0)
    assert paths(drawn) == [(2,), (1,)]


@given(
    chain=st.lists(st.integers(0, 44), max_size=12),
    budget=st.integers(-1, 59),
    room=st.integers(-1, 9),
    temperature=st.sampled_from([0.0, 1.0]),
    bypass=st.sampled_from(["distinct", "paper", "off"]),
    top_k=st.integers(1, 12),
)
def test_every_tree_keeps_to_its_bounds_and_the_spine_comes_last(
    chain: list[int], budget: int, room: int, temperature: float, bypass: Any, top_k: int
) -> None:
    sources = Dice(offer(*chain) if chain else (), four, ranking="draft")
    policy = SampledSpine(bypass=bypass, top_k=top_k)
    tree = sources.grow(policy, budget=budget, room=room, temperature=temperature)
    check_shape(tree, budget, room)
    copied = [i for i in range(1, len(tree)) if tree.sources[i] == "context"]
    for node in copied:
        siblings = [i for i in range(1, len(tree)) if tree.parents[i] == tree.parents[node]]
        assert siblings[-1] == node
    assert tree.path_tokens(copied[-1] if copied else 0) == tuple(chain[: len(copied)])
