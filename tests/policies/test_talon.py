"""TALON: its worked levels, and trees against a literal Algorithm 2 over whole vocabularies."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.talon import Talon
from draftwood.protocols import Expand
from tests.factories.scripted_sources import (
    Row,
    Sources,
    check_shape,
    distributions,
    drafter,
    offer,
    offered,
    paths,
)

COPYING = Talon(chain="context")


def adaptive_tree(
    table: Mapping[int, Row], policy: Talon, budget: int, room: int, chain: tuple[int, ...] = ()
) -> list[set[tuple[int, ...]]]:
    """Algorithm 2, with every successor of every parent in the pool: the levels P_1, P_2, ...

    Nodes on ``chain`` are in the tree from the start.
    """
    levels: list[set[tuple[int, ...]]] = []
    log: dict[tuple[int, ...], float] = {(): 0.0}
    parents: list[tuple[int, ...]] = [()]
    tree = {chain[: i + 1] for i in range(len(chain))}
    d = 0
    while len(tree) < budget and d < min(policy.max_depth, room):
        pool: dict[tuple[int, ...], float] = {}
        for v in parents:
            pool |= {u: log[v] + score for u, score in offered(table, v)}
        ranked = sorted(pool, key=lambda u: -pool[u])
        if d < policy.robust:
            chosen = ranked[: policy.top_k]
        else:
            anchor = max(pool.values(), default=0.0)
            chosen = [u for u in ranked if math.exp(pool[u] - anchor) >= policy.mu]
        parents = []
        for u in chosen:
            if len(tree) < budget:
                tree.add(u)
                parents.append(u)
        if not parents:
            break
        log |= pool
        levels.append(set(parents))
        d += 1
    return levels


def levels_of(sources: Sources, policy: Talon, **limits: int) -> list[set[tuple[int, ...]]]:
    nodes = paths(sources.grow(policy, **limits))
    assert [len(path) for path in nodes] == sorted(len(path) for path in nodes)
    depth = max(map(len, nodes), default=0)
    return [{path for path in nodes if len(path) == d} for d in range(1, depth + 1)]


@given(
    seed=st.integers(0, 10**6),
    mu=st.sampled_from([0.0307, 0.297, 0.803, 1.0]),
    top_k=st.integers(1, 12),
    robust=st.integers(0, 3),
    max_depth=st.integers(1, 7),
    budget=st.integers(0, 59),
    room=st.integers(0, 9),
)
def test_every_tree_is_algorithm_2s(
    seed: int, mu: float, top_k: int, robust: int, max_depth: int, budget: int, room: int
) -> None:
    table = distributions(seed)
    policy = Talon(mu=mu, top_k=top_k, robust=robust, max_depth=max_depth)
    assert levels_of(drafter(table), policy, budget=budget, room=room) == adaptive_tree(
        table, policy, budget, room
    )


def test_by_hand() -> None:
    # Level 0 ungated: all three. Level 1: m = .6 * .5 = .3, so mu = .2 asks for .06: .6 * .5,
    # .6 * .4 and .3 * .3 stay, .6 * .05 = .03 and .1 * .5 = .05 do not.
    table: dict[int, Row] = {
        0: [(1, 0.6), (2, 0.3), (3, 0.1)],
        1: [(4, 0.5), (5, 0.4), (6, 0.05)],
        2: [(7, 0.3)],
        3: [(8, 0.5)],
    }
    sources = drafter(table)
    tree = sources.grow(Talon(mu=0.2))
    assert paths(tree) == [(1,), (2,), (3,), (1, 4), (1, 5), (2, 7)]
    assert tree.route == "talon"
    assert tree.logq[1:4].tolist() == pytest.approx([math.log(p) for p in (0.6, 0.3, 0.1)])
    assert sources.expansions == [[0], [1, 2, 3], [4, 5, 6]]


def test_deep_and_narrow_or_shallow_and_wide() -> None:
    sure = drafter(lambda token: [(token + 1, 0.99), (token + 100, 0.01)])
    tree = sure.grow(Talon(top_k=1))
    assert (tree.depth, tree.drafted, len(sure.expansions)) == (32, 32, 32)
    assert sure.grow(Talon(top_k=1, max_depth=50)).depth == 50
    unsure = drafter(lambda token: [(100 * token + i, 0.01) for i in range(1, 99)])
    tree = unsure.grow(Talon())
    assert (tree.depth, tree.drafted, len(unsure.expansions)) == (2, 59, 2)


def test_as_many_tokens_are_asked_for_as_there_is_budget_left() -> None:
    sources = drafter(lambda token: [(9 * token + i, 0.5 / i) for i in range(1, 9)])
    sources.grow(Talon(budget=30, top_k=4))
    asked = [query.k for query in sources.asked if isinstance(query, Expand)]
    assert asked[:2] == [4, 26]
    sources.asked.clear()
    sources.grow(Talon(budget=3))
    assert [query.k for query in sources.asked if isinstance(query, Expand)] == [3]


@given(
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 14), max_size=15),
    copied=st.integers(1, 15),
    budget=st.integers(-1, 59),
    room=st.integers(-1, 12),
    robust=st.integers(0, 3),
)
def test_every_tree_with_a_copied_path_is_algorithm_2s_beside_it(
    seed: int, chain: list[int], copied: int, budget: int, room: int, robust: int
) -> None:
    table = distributions(seed, vocab=15, most=12)
    sources = drafter(table, offer(*chain) if chain else ())
    policy = replace(COPYING, copied=copied, robust=robust)
    tree = sources.grow(policy, budget=budget, room=room)
    check_shape(tree, budget, room)
    assert tree.sources.count("context") == max(0, min(copied, budget // 2, room, len(chain)))
    laid = tuple(chain[: tree.sources.count("context")])
    levels = adaptive_tree(table, policy, budget, room, laid)
    copies = {laid[: i + 1] for i in range(len(laid))}
    assert set(paths(tree)) == copies.union(*levels)
