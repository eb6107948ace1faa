"""OPT-Tree: its stop by hand, and trees against the literal method that forwards more nodes."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.opt_tree import OptTree
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    offered,
    paths,
)


def best_tree(
    table: Mapping[int, Row], n: int, delta: float, max_depth: int
) -> tuple[set[tuple[int, ...]], int]:
    """The tree and the number of forwards, each of them over the n likeliest frontier nodes."""
    log: dict[tuple[int, ...], float] = {(): 0.0}
    frontier: list[tuple[int, ...]] = [()]
    best: list[tuple[int, ...]] = []
    expected, forwards = 0.0, 0
    while frontier and forwards < max_depth:
        forwards += 1
        level: dict[tuple[int, ...], float] = {}
        for v in frontier:
            level |= {u: log[v] + score for u, score in offered(table, v)}
        log |= level
        frontier = sorted(level, key=lambda u: -level[u])[:n]
        best = sorted((u for u in log if u), key=lambda u: -log[u])[:n]
        before, expected = expected, sum(math.exp(log[u]) for u in best)
        if expected - before <= delta + 1e-12:
            break
    return set(best), forwards


@given(
    seed=st.integers(0, 10**6),
    delta=st.sampled_from([0.0, 0.0513, 0.497]),
    max_depth=st.integers(1, 6),
    budget=st.integers(1, 40),
    room=st.integers(1, 7),
)
def test_every_tree_is_the_literal_methods(
    seed: int, delta: float, max_depth: int, budget: int, room: int
) -> None:
    table = distributions(seed, vocab=20, most=12)
    sources = drafter(table)
    tree = sources.grow(OptTree(delta=delta, max_depth=max_depth), budget=budget, room=room)
    check_shape(tree, budget, room)
    best, forwards = best_tree(table, budget, delta, min(max_depth, room))
    assert set(paths(tree)) == best
    assert len(sources.expansions) == forwards
    assert tree.depths.tolist() == sorted(tree.depths.tolist())


def test_by_hand() -> None:
    # E: .9 after level 1, .9 + .6 + .3 after level 2, then 4 (.54) pushes 3 (.3) out: +.24 only.
    table: dict[int, Row] = {
        0: [(1, 0.9)],
        1: [(2, 2 / 3), (3, 1 / 3)],
        2: [(4, 0.9), (5, 0.1)],
        3: [(6, 0.9)],
        4: [(7, 1.0)],
    }
    sources = drafter(table)
    tree = sources.grow(OptTree(budget=3))
    assert paths(tree) == [(1,), (1, 2), (1, 2, 4)]
    assert tree.route == "opt_tree"
    assert len(sources.expansions) == 3
    assert sources.grow(OptTree(budget=3, delta=0.95)).drafted == 1
    assert sources.grow(OptTree(budget=3, delta=0.2)).drafted == 3
    assert len(sources.grow(OptTree(delta=0.0))) == 8


def test_it_stops_where_a_level_adds_too_little() -> None:
    even = drafter(lambda token: [(token + 1, 0.9)])
    # .9 ** 6 = .531 is worth another level, .9 ** 7 = .478 is the last.
    assert even.grow(OptTree()).depth == len(even.expansions) == 7
    sure = drafter(lambda token: [(token + 1, 1.0)])
    assert sure.grow(OptTree()).depth == 32
    assert sure.grow(OptTree(delta=1.0)).depth == 1  # adds exactly 1, which is not more
    assert sure.grow(OptTree(delta=0.999)).depth == 32


def test_nodes_out_of_the_best_are_not_forwarded() -> None:
    # Of the eight children of level 2 only the two likeliest are among the best four.
    table: dict[int, Row] = {
        0: [(1, 0.5), (2, 0.5)],
        1: [(3, 0.9), (4, 0.1)],
        2: [(5, 0.9), (6, 0.1)],
    }
    sources = drafter(table)
    sources.grow(OptTree(budget=4, delta=0.0))
    assert [len(nodes) for nodes in sources.expansions] == [1, 2, 2]
