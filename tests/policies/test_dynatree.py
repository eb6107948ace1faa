"""DynaTree: its gates one by one, history by hand, and trees against a literal Algorithm 1."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies.dynatree import DynaTree, DynaTreeState
from draftwood.policies.fixed import Fixed
from draftwood.tree import TokenTree, tree_of
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    offer,
    offered,
    outcome,
    paths,
)

START = DynaTreeState((), 6.0, 0.9)
COPYING = DynaTree(chain="context")


def chain_of(length: int, source: str = "draft") -> TokenTree:
    return tree_of(range(length + 1), range(-1, length), source)


def draft_tree(
    table: Mapping[int, Row], policy: DynaTree, state: DynaTreeState
) -> list[tuple[int, ...]]:
    """Algorithm 1, lines 10 to 31, one node at a time; leaves are pruned when the tree stands."""
    log: dict[tuple[int, ...], float] = {(): 0.0}
    queue: list[tuple[int, ...]] = [()]
    while queue:
        u = queue.pop(0)
        p, d = math.exp(log[u]), len(u)
        if policy.depth == "adaptive":
            if d >= policy.max_depth or p < policy.rho_stop:
                continue
            if d >= state.base_depth and p <= policy.rho_deep:
                continue
        elif d >= policy.base_depth:
            continue
        row = offered(table, u)
        confidence = math.exp(row[0][1]) if row else 0.0
        breadth = policy.b_mid
        if policy.breadth == "adaptive" and confidence >= state.tau_high:
            breadth = policy.b_min
        elif policy.breadth == "adaptive" and confidence < policy.tau_low:
            breadth = policy.b_max
        for child, score in row[:breadth]:
            log[child] = log[u] + score
            queue.append(child)
    tree = [node for node in log if node]
    while policy.prune:
        inner = {node[:-1] for node in tree}
        kept = [u for u in tree if u in inner or math.exp(log[u]) >= policy.tau]
        if len(kept) == len(tree):
            break
        tree = kept
    return tree


POLICIES = st.builds(
    DynaTree,
    budget=st.just(10_000),
    breadth=st.sampled_from(["adaptive", "fixed"]),
    depth=st.sampled_from(["adaptive", "fixed"]),
    prune=st.booleans(),
    b_max=st.integers(2, 4),
    base_depth=st.integers(2, 3),
    max_depth=st.integers(4, 6),
    rho_stop=st.sampled_from([0.0213, 0.1013]),
    rho_deep=st.sampled_from([0.1517, 0.4987]),
    tau=st.sampled_from([0.0, 0.0497, 0.1509]),
)


@given(
    st.integers(0, 10**6),
    POLICIES,
    st.sampled_from([2.0, 2.4, 3.0, 3.7]),
    st.sampled_from([0.41, 0.707, 1.0]),
)
def test_every_tree_is_algorithm_1s(
    seed: int, policy: DynaTree, base_depth: float, tau_high: float
) -> None:
    table = distributions(seed, vocab=15, most=6)
    state = DynaTreeState((), base_depth, tau_high)
    tree = drafter(table).grow(policy, state=state)
    assert paths(tree) == draft_tree(table, policy, state)


@given(st.integers(0, 10**6), POLICIES, st.integers(0, 30), st.integers(0, 5))
def test_a_small_budget_keeps_the_first_in_breadth_first_order(
    seed: int, policy: DynaTree, budget: int, room: int
) -> None:
    table = distributions(seed, vocab=15, most=6)
    whole = paths(drafter(table).grow(policy))
    tree = drafter(table).grow(policy, budget=budget, room=room)
    check_shape(tree, budget, room)
    assert paths(tree) == [path for path in whole if len(path) <= room][:budget]


@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 59))
def test_with_everything_off_it_is_the_fixed_tree(seed: int, prune: bool, budget: int) -> None:
    table = distributions(seed, vocab=15, most=6)
    off = DynaTree(breadth="fixed", depth="fixed", prune=prune, history=False)
    fixed = Fixed(depth=6, breadth=2, threshold=0.05 if prune else 0.0)
    assert paths(drafter(table).grow(off, budget=budget)) == paths(
        drafter(table).grow(fixed, budget=budget)
    )


def test_by_hand() -> None:
    # The root is unsure (.35 < .4): three children, the first level has breadth here. Node 1 is
    # sure (.95): one child, .35 * .95 = .3325. Node 2 is in between: .3 * .5 = .15 and .3 * .1 =
    # .03, which is under tau = .05. Node 3 (.09 < rho_stop) is not expanded.
    table: dict[int, Row] = {
        0: [(1, 0.35), (2, 0.3), (3, 0.09), (9, 0.08)],
        1: [(4, 0.95), (5, 0.04)],
        2: [(6, 0.5), (7, 0.1), (8, 0.1)],
        3: [(10, 1.0)],
    }
    sources = drafter(table)
    tree = sources.grow(DynaTree())
    assert paths(tree) == [(1,), (2,), (3,), (1, 4), (2, 6)]
    assert tree.route == "dynatree"
    assert sources.expansions == [[0], [1, 2], [4, 5]]
    assert paths(sources.grow(DynaTree(prune=False)))[-1] == (2, 7)


def test_breadth_at_its_thresholds() -> None:
    confidence = np.array([0.95, 0.9, 0.89, 0.4, 0.39, 0.0])
    assert DynaTree().widths(confidence, START).tolist() == [1, 1, 2, 2, 3, 3]
    assert DynaTree().widths(confidence, replace(START, tau_high=0.93)).tolist()[:2] == [1, 2]
    assert DynaTree(breadth="fixed").widths(confidence, START).tolist() == [2] * 6


def test_depth_at_its_thresholds() -> None:
    policy = DynaTree()
    p = np.array([1.0, 0.51, 0.5, 0.1, 0.09])

    def gates(depth: int, state: DynaTreeState = START) -> list[bool]:
        mask: list[bool] = policy.expandable(p, depth, state).tolist()
        return mask

    assert gates(5) == [True, True, True, True, False]
    assert gates(6) == gates(8) == [True, True, False, False, False]
    assert gates(9) == [False] * 5
    assert gates(6, replace(START, base_depth=6.1)) == gates(5)
    policy = DynaTree(depth="fixed")
    assert gates(5) == [True] * 5
    assert gates(6) == [False] * 5


def test_history_by_hand() -> None:
    policy = DynaTree()
    state = policy.learn(policy.start(), outcome(chain_of(4), 1, 2, 3, 4))  # a = 1
    assert state.recent == (1.0,)
    assert state.base_depth == pytest.approx(6.3)
    assert state.tau_high == pytest.approx(0.885)
    state = policy.learn(state, outcome(chain_of(5)))  # a = 0, mean .5
    assert state.recent == (1.0, 0.0)
    assert state.base_depth == pytest.approx(6.1)
    assert state.tau_high == pytest.approx(0.895)
    branching = tree_of([0, 1, 2, 3, 4], [-1, 0, 0, 1, 1], "draft")
    state = policy.learn(state, outcome(branching, 1))  # a = 1 of depth 2, mean .5
    assert state.recent[-1] == 0.5
    assert state.base_depth == pytest.approx(5.9)


def test_history_looks_back_on_a_window() -> None:
    policy = DynaTree(window=3, goal=0.5)
    state = policy.start()
    for path in ((1, 2), (), (), ()):
        state = policy.learn(state, outcome(chain_of(2), *path))
    assert state.recent == (0.0, 0.0, 0.0)
    # means 1, 1/2, 1/3 and 0 against 1/2
    assert state.base_depth == pytest.approx(6 + 0.5 + 0 - 1 / 6 - 0.5)


def test_what_history_adapts_stays_in_range() -> None:
    policy = DynaTree(tau_step=0.5)
    high = low = policy.start()
    for _ in range(60):
        high = policy.learn(high, outcome(chain_of(2), 1, 2))
        low = policy.learn(low, outcome(chain_of(2)))
    assert high.base_depth == 8
    assert policy.tau_low < high.tau_high < policy.tau_low + 1e-9
    assert (low.base_depth, low.tau_high) == (2, 1.0)
    assert policy.widths(np.array([0.39, 0.4, 0.41]), high).tolist() == [3, 2, 1]


def test_no_evidence_and_no_history() -> None:
    plain = drafter({}).grow(DynaTree())
    assert plain.route == "plain"
    assert DynaTree().learn(START, outcome(plain)) == START
    still = DynaTree(history=False)
    assert still.learn(still.start(), outcome(chain_of(3), 1)) == still.start() == START


def test_shared_nodes_do_not_cost_budget() -> None:
    table = {0: [(1, 0.4), (7, 0.3), (2, 0.2)]}
    tree = drafter(table, offer(7)).grow(replace(COPYING, b_mid=3), budget=3)
    assert paths(tree) == [(7,), (1,), (2,)]


def test_history_is_measured_on_what_the_drafter_proposed() -> None:
    table: dict[int, Row] = {0: [(1, 0.95), (7, 0.04)], 1: [(2, 0.95)]}
    tree = drafter(table, offer(7, 8, 9)).grow(COPYING)
    assert paths(tree) == [(7,), (7, 8), (7, 8, 9), (1,), (1, 2)]
    assert COPYING.learn(START, outcome(tree, 4)).recent == (0.5,)
    assert COPYING.learn(START, outcome(tree, 1, 2, 3)).recent == (1.0,)
    copied = drafter({}, offer(7, 8)).grow(COPYING)
    assert (copied.route, copied.drafted) == ("dynatree", 2)
    assert COPYING.learn(START, outcome(copied, 1)) == START


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"b_min": 3}, "b_min = 3, b_mid = 2, b_max = 3: give values with b_min <= b_mid <= b_max"),
        ({"b_mid": 4}, "b_mid = 4"),
        ({"tau_low": 0.9}, "tau_low = 0.9, tau_high = 0.9"),
        ({"base_depth": 9}, "base_depth = 9, max_depth = 9"),
        ({"rho_deep": 0.05}, "rho_deep = 0.05"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        DynaTree(**wrong)
