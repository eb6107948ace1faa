"""EAGLE-2: levels by hand, ties, and trees against a literal expand-then-shrink."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.eagle2 import Eagle2
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    offered,
    paths,
)


def static_tree(
    table: Mapping[int, Row], top_k: int, levels: int, budget: int
) -> set[tuple[int, ...]]:
    """TALON's Algorithm 1, all candidates kept, sorted once at the end."""
    log: dict[tuple[int, ...], float] = {(): 0.0}
    parents: list[tuple[int, ...]] = [()]
    for _ in range(levels):
        level: dict[tuple[int, ...], float] = {}
        for v in parents:
            level |= {u: log[v] + score for u, score in offered(table, v)[:top_k]}
        log |= level
        parents = sorted(level, key=lambda u: -level[u])[:top_k]
    del log[()]
    return set(sorted(log, key=lambda u: -log[u])[:budget])


@given(
    seed=st.integers(0, 10**6),
    top_k=st.integers(1, 6),
    levels=st.integers(1, 5),
    budget=st.integers(0, 59),
    room=st.integers(0, 6),
)
def test_every_tree_is_algorithm_1s(
    seed: int, top_k: int, levels: int, budget: int, room: int
) -> None:
    table = distributions(seed)
    tree = drafter(table).grow(Eagle2(top_k=top_k, levels=levels), budget=budget, room=room)
    check_shape(tree, budget, room)
    assert set(paths(tree)) == static_tree(table, top_k, min(levels, room), budget)
    assert tree.depths.tolist() == sorted(tree.depths.tolist())


def test_by_hand() -> None:
    # K = 2. Level 1: 1 .6, 2 .3 (3 is no candidate). Level 2: 4 .36, 5 .12, 6 .27, 7 .03; parents
    # 4 and 6. Level 3: 8 .18, 9 .18, 10 .135. The five likeliest: 1, 4, 2, 6 and the first .18.
    table: dict[int, Row] = {
        0: [(1, 0.6), (2, 0.3), (3, 0.1)],
        1: [(4, 0.6), (5, 0.2)],
        2: [(6, 0.9), (7, 0.1)],
        4: [(8, 0.5), (9, 0.5)],
        5: [(11, 1.0)],
        6: [(10, 0.5)],
    }
    sources = drafter(table)
    tree = sources.grow(Eagle2(budget=5, top_k=2, levels=3))
    assert paths(tree) == [(1,), (2,), (1, 4), (2, 6), (1, 4, 8)]
    assert tree.route == "eagle2"
    assert [len(nodes) for nodes in sources.expansions] == [1, 2, 2]
    # Candidates that were no parents are in the tree as well: 5 (.12), but not its child.
    tree = sources.grow(Eagle2(budget=8, top_k=2, levels=3))
    assert set(paths(tree)) >= {(1, 5), (2, 6, 10)}
    assert (1, 5, 11) not in paths(tree)


def test_forwards_and_candidates() -> None:
    sources = drafter(lambda token: [(10 * token + i, 0.5 / i) for i in range(1, 12)])
    assert sources.grow(Eagle2()).drafted == 59
    assert [len(nodes) for nodes in sources.expansions] == [1] + [10] * 8
    assert {query.k for query in sources.asked} == {10}  # type: ignore[union-attr]
    sources.asked.clear()
    sources.grow(Eagle2(), room=3)
    assert len(sources.expansions) == 3


def test_a_certain_chain_keeps_parents_first() -> None:
    # Every node is certain, so all tie: a chain of 9 and nothing without its parent.
    sources = drafter(lambda token: [(2 * token + 1, 1.0), (2 * token + 2, 1.0)])
    tree = sources.grow(Eagle2(budget=7, top_k=2))
    assert tree.drafted == 7
    assert tree.depths.tolist() == [0, 1, 1, 2, 2, 2, 2, 3]
    assert drafter(lambda token: [(token + 1, 1.0)]).grow(Eagle2()).depth == 9
