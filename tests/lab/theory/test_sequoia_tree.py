"""The dynamic programme against every tree there is, and the choice of size and depth."""

import math
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.lab.theory.sequoia_tree import (
    RankPath,
    RankTree,
    TreeSearch,
    best_tree,
    fastest_tree,
)
from draftwood.policies._rank_acceptance import DEFAULT_ACCEPTANCE
from draftwood.policies._static import likeliest_paths

examples = settings(max_examples=60)
vectors = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4)


def expected_length(paths: Sequence[RankPath], acceptance: Sequence[float]) -> float:
    return 1.0 + sum(math.prod(acceptance[rank] for rank in path) for path in paths)


@cache
def forests(nodes: int, rank: int = 0) -> tuple[tuple[RankPath, ...], ...]:
    """All ways to hang `nodes` nodes below one parent whose next free child has this rank."""
    return tuple(_forests(nodes, rank))


def _forests(nodes: int, rank: int) -> Iterator[tuple[RankPath, ...]]:
    if nodes == 0:
        yield ()
        return
    for below in range(nodes):
        for subtree in forests(below):
            first = ((rank,), *((rank, *path) for path in subtree))
            for rest in forests(nodes - 1 - below, rank + 1):
                yield (*first, *rest)


def brute_force(acceptance: list[float], nodes: int, depth: int) -> float:
    """The largest expected length over all trees of at most `nodes` nodes."""
    best = 1.0
    for size in range(1, nodes + 1):
        for paths in forests(size):
            if max(map(len, paths)) <= depth and max(map(max, paths)) < len(acceptance):
                best = max(best, expected_length(paths, acceptance))
    return best


def test_the_brute_force_sees_all_trees() -> None:
    assert [len(forests(n)) for n in range(7)] == [1, 1, 2, 5, 14, 42, 132]  # Catalan numbers


@examples
@given(vectors, st.integers(0, 6), st.integers(0, 6))
def test_the_programme_equals_brute_force(acceptance: list[float], nodes: int, depth: int) -> None:
    tree = best_tree(acceptance, nodes, depth)
    assert tree.length == pytest.approx(brute_force(acceptance, nodes, depth), abs=1e-12)
    assert len(tree.paths) <= nodes
    assert tree.depth <= depth


@examples
@given(vectors, st.integers(0, 30), st.integers(0, 8))
def test_the_tree_is_as_long_as_it_says(acceptance: list[float], nodes: int, depth: int) -> None:
    tree = best_tree(acceptance, nodes, depth)
    assert tree.length == pytest.approx(expected_length(tree.paths, acceptance), abs=1e-12)
    seen: set[RankPath] = {()}
    for path in tree.paths:
        assert path[:-1] in seen, "parents come first"
        assert path[-1] == 0 or (*path[:-1], path[-1] - 1) in seen, "better ranks come first"
        seen.add(path)
    assert len(seen) == len(tree.paths) + 1 <= nodes + 1


@examples
@given(vectors, st.integers(0, 40))
def test_best_first_is_optimal_for_falling_acceptance(values: list[float], nodes: int) -> None:
    """What the policy's built-in tree relies on."""
    acceptance = sorted(values, reverse=True)
    greedy = expected_length(likeliest_paths(acceptance, nodes), acceptance)
    assert best_tree(acceptance, nodes).length == pytest.approx(greedy, abs=1e-12)


def test_best_first_is_not_optimal_for_rising_acceptance() -> None:
    """It never pays for a worthless rank to reach a better one behind it."""
    acceptance = [0.5, 0.0, 0.9]
    assert best_tree(acceptance, 3).paths == ((0,), (1,), (2,))
    assert best_tree(acceptance, 3).length == pytest.approx(2.4)
    greedy = likeliest_paths(acceptance, 3)
    assert expected_length(greedy, acceptance) == pytest.approx(1 + 0.5 + 0.25 + 0.125)


def test_the_built_in_tree_is_the_programmes() -> None:
    tree = best_tree(DEFAULT_ACCEPTANCE, 59)
    assert set(tree.paths) == set(likeliest_paths(DEFAULT_ACCEPTANCE, 59))
    assert (len(tree.paths), tree.depth) == (59, 9)
    assert tree.length == pytest.approx(3.857646, abs=1e-6)


def test_by_hand() -> None:
    # .5 and .3: alone .5; two nodes .5 + .3 beat .5 + .25; three add the chain's .25.
    assert best_tree([0.5, 0.3], 0) == RankTree((), 1.0)
    assert best_tree([0.5, 0.3], 1) == RankTree(((0,),), 1.5)
    assert best_tree([0.5, 0.3], 2).paths == ((0,), (1,))
    assert best_tree([0.5, 0.3], 3).paths == ((0,), (0, 0), (1,))
    assert best_tree([0.5, 0.3], 3).length == pytest.approx(1 + 0.5 + 0.3 + 0.25)
    assert best_tree([0.5, 0.3], 9, max_depth=1).paths == ((0,), (1,))
    assert best_tree([1.0], 4).paths == ((0,), (0, 0), (0, 0, 0), (0, 0, 0, 0))
    assert best_tree([0.0], 4) == RankTree((), 1.0)


def test_the_tables_hold_every_smaller_search() -> None:
    acceptance = [0.7, 0.2, 0.05]
    search = TreeSearch(acceptance, 20, 6)
    for nodes in (0, 1, 7, 20):
        for depth in (0, 1, 3, 6):
            assert search.tree(nodes, depth) == best_tree(acceptance, nodes, depth)
            assert search.length(nodes, depth) == best_tree(acceptance, nodes, depth).length


@examples
@given(
    vectors,
    st.floats(0.0, 2.0),
    st.lists(st.floats(0.1, 5.0), min_size=1, max_size=6),
    st.integers(0, 5),
)
def test_the_fastest_tree_beats_all(
    acceptance: list[float], draft: float, target: list[float], max_depth: int
) -> None:
    target.sort()
    tree = fastest_tree(acceptance, draft, target, max_depth)
    pace = (tree.depth * draft + target[len(tree.paths)]) / tree.length
    rivals = [
        (depth * draft + target[nodes]) / brute_force(acceptance, nodes, depth)
        for nodes in range(len(target))
        for depth in range(max_depth + 1)
    ]
    assert pace == pytest.approx(min(rivals), rel=1e-12)


def test_slow_drafts_make_shallow_trees_and_flat_targets_large_ones() -> None:
    acceptance, flat = list(DEFAULT_ACCEPTANCE), [1.0] * 40
    depths = [fastest_tree(acceptance, draft, flat, 10).depth for draft in (0.0, 0.05, 0.3, 5.0)]
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == 0 < depths[1] < depths[0]
    assert len(fastest_tree(acceptance, 0.05, flat, 10).paths) == 39
    steep = [1.0 + 0.2 * m for m in range(40)]
    assert len(fastest_tree(acceptance, 0.05, steep, 10).paths) < 5
    assert fastest_tree([0.5], 1.0, [1.0, 1.0], 3) == RankTree((), 1.0)
