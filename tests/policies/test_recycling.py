"""Token Recycling's static tree: its rule, its levels, and what a smaller budget leaves."""

import math

import pytest

from draftwood.policies._fill import by_level
from draftwood.policies.recycling import LEVELS, NODES, WIDTH, Recycling, template
from tests.factories.scripted_sources import Row, Sources


def plenty(token: int) -> Row:
    return [((8 * token + i + 1) % 10**9, 0.5 / (i + 1)) for i in range(WIDTH)]


def cost(path: tuple[int, ...]) -> float:
    return sum(math.log(1 + rank) for rank in path)


def test_eighty_nodes_in_the_papers_levels() -> None:
    assert tuple(len(level) for level in by_level(template())) == LEVELS == (8, 21, 25, 15, 8, 3)
    tree = Sources((), plenty).grow(Recycling())
    depths = tree.depths.tolist()
    assert [depths.count(d) for d in range(7)] == [1, 8, 21, 25, 15, 8, 3]
    assert depths == sorted(depths)


def test_each_level_has_the_smallest_sums() -> None:
    above: list[tuple[int, ...]] = [()]
    for level in by_level(template()):
        possible = [(*path, rank) for path in above for rank in range(WIDTH)]
        assert set(level) <= set(possible)
        worst = max(cost(path) for path in level)
        left_out = [path for path in possible if path not in level]
        assert all(cost(path) >= worst - 1e-9 for path in left_out)
        tied = [path for path in possible if math.isclose(cost(path), worst)]
        kept = [path for path in tied if path in level]
        assert kept == tied[: len(kept)]
        above = list(level)


@pytest.mark.parametrize("budget", range(NODES + 1))
def test_a_smaller_tree_is_closed_under_parents_and_cheapest(budget: int) -> None:
    kept = template(budget)
    assert len(kept) == budget
    assert all(path[:-1] in {(), *kept} for path in kept)
    dropped = set(template()) - set(kept)
    if kept and dropped:
        assert max(map(cost, kept)) <= min(map(cost, dropped)) + 1e-9


def test_nodes_carry_the_successor_of_their_rank() -> None:
    tree = Sources((), plenty).grow(Recycling())
    for node in range(1, len(tree)):
        parent = int(tree.parents[node])
        ranks = [token for token, _ in plenty(int(tree.tokens[parent]))]
        siblings = [i for i in range(len(tree)) if tree.parents[i] == parent]
        assert int(tree.tokens[node]) == ranks[siblings.index(node)]


def test_a_level_is_one_query() -> None:
    sources = Sources((), plenty)
    sources.grow(Recycling())
    assert [len(nodes) for nodes in sources.expansions] == [
        len({path[:-1] for path in level}) for level in by_level(template())
    ]
