"""What was accepted, counted by hand and by walking over whole trees."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.acceptance import AcceptanceCounts, acceptance_of, merged
from draftwood.tree import Draw, TreeBuilder
from tests.factories.bench_rows import random_steps, step, tree

#      0
#    / | \
#   1  2  3        2 and 5 are accepted
#   |  | \
#   4  5  6
#      |
#      7
PARENTS = (-1, 0, 0, 0, 1, 2, 2, 5)
SOURCES = ("root", "x", "x", "y", "x", "y", "y", "x")


def test_a_tree_is_counted_by_hand() -> None:
    found = acceptance_of([step(tree(PARENTS, sources=SOURCES), (2, 5))])
    assert found.by_depth == {1: (1, 1), 2: (1, 1), 3: (1, 0)}
    assert found.by_source == {"x": (4, 1), "y": (3, 1)}
    # Node 4 was not offered, its parent being rejected; node 7 was, and was rejected.
    assert found.by_rank == {
        (1, 1): (1, 0),
        (1, 2): (1, 1),
        (1, 3): (1, 0),
        (2, 1): (1, 1),
        (2, 2): (1, 0),
        (3, 1): (1, 0),
    }


def test_equal_siblings_are_told_apart_by_their_nodes() -> None:
    builder = TreeBuilder(1)
    for _ in range(3):
        builder.add(0, 7, "q", draw=Draw.IID)
    found = acceptance_of([step(builder.build(), (2,))])
    assert found.by_rank == {(1, 1): (1, 0), (1, 2): (1, 1), (1, 3): (1, 0)}


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_those_of_a_walk_over_every_node(seed: int) -> None:
    steps = random_steps(40, seed)
    assert any(not one.tree.drafted for one in steps)
    found = acceptance_of(steps)
    assert found == walked(steps)
    for counts in (found.by_depth, found.by_source, found.by_rank):
        assert list(counts) == sorted(counts)


@pytest.mark.parametrize("seed", range(5))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    steps = random_steps(30, seed)
    cuts: tuple[list[StepStats], ...] = (steps[:7], steps[7:8], [], steps[8:])
    assert merged(acceptance_of(part) for part in cuts) == acceptance_of(steps)
    assert merged([]) == AcceptanceCounts()


def walked(steps: Iterable[StepStats]) -> AcceptanceCounts:
    """The same from the definitions, node by node, knowing nothing of paths but their members."""
    depths: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    sources: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    ranks: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for one in steps:
        nodes = range(1, len(one.tree))
        for depth in range(1, 100):
            depths[depth][0] += any(one.tree.depths[node] >= depth for node in nodes)
            depths[depth][1] += any(one.tree.depths[node] == depth for node in one.path)
        for node in nodes:
            accepted = node in one.path
            sources[one.tree.sources[node]][0] += 1
            sources[one.tree.sources[node]][1] += accepted
            parent = one.tree.parents[node]
            if parent == 0 or parent in one.path:
                elder = sum(one.tree.parents[other] == parent for other in range(1, node))
                ranks[int(one.tree.depths[node]), elder + 1][0] += 1
                ranks[int(one.tree.depths[node]), elder + 1][1] += accepted
    return AcceptanceCounts(
        {depth: (n[0], n[1]) for depth, n in depths.items() if n[0]},
        {source: (n[0], n[1]) for source, n in sources.items()},
        {place: (n[0], n[1]) for place, n in ranks.items()},
    )
