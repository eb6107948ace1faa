"""The fixed tree and linear speculative decoding, against a literal breadth-first reference."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.fixed import Fixed
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    offered,
    paths,
)

TABLE: dict[int, Row] = {
    0: [(1, 0.6), (2, 0.3), (3, 0.1)],
    1: [(4, 0.5), (5, 0.4), (6, 0.1)],
    2: [(7, 0.9), (8, 0.1)],
    4: [(9, 1.0)],
}


def reference(
    table: Mapping[int, Row], budget: int, depth: int, breadth: int, least: float
) -> list[tuple[int, ...]]:
    """Nodes in the order of a queue, one at a time."""
    tree: list[tuple[int, ...]] = []
    queue: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while queue:
        node, p = queue.pop(0)
        if len(node) >= depth:
            continue
        for child, score in offered(table, node)[:breadth]:
            reached = p * math.exp(score)
            if reached >= least and len(tree) < budget:
                tree.append(child)
                queue.append((child, reached))
    return tree


def test_by_hand() -> None:
    # Path probabilities: 1 .6, 2 .3; 4 .3, 5 .24 below 1; 7 .27, 8 .03 below 2; 9 .3 below 4.
    sources = drafter(TABLE)
    tree = sources.grow(Fixed(breadth=2, threshold=0.2))
    assert paths(tree) == [(1,), (2,), (1, 4), (1, 5), (2, 7), (1, 4, 9)]
    assert tree.route == "fixed"
    assert tree.logq[1:].tolist() == pytest.approx(np.log([0.6, 0.3, 0.5, 0.4, 0.9, 1]))
    assert set(tree.sources[1:]) == {"draft"}
    assert sources.expansions == [[0], [1, 2], [3, 4, 5], [6]]


def test_a_chain_is_linear_speculative_decoding() -> None:
    sources = drafter(lambda token: [(token + 1, 0.01), (token + 50, 0.009)])
    tree = sources.grow(Fixed(budget=8, depth=None, breadth=1, threshold=0.0))
    assert tree.path_tokens(8) == tuple(range(1, 9))
    assert tree.drafted == 8
    assert sources.expansions == [[node] for node in range(8)]
    assert {query.k for query in sources.asked} == {1}  # type: ignore[union-attr]


@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(0, 40),
    depth=st.integers(1, 6),
    breadth=st.integers(1, 4),
    least=st.sampled_from([0.0, 0.013, 0.11]),
    room=st.integers(0, 8),
)
def test_every_tree_is_the_references(
    seed: int, budget: int, depth: int, breadth: int, least: float, room: int
) -> None:
    table = distributions(seed)
    policy = Fixed(budget=59, depth=depth, breadth=breadth, threshold=least)
    tree = drafter(table).grow(policy, budget=budget, room=room)
    check_shape(tree, budget, room)
    assert paths(tree) == reference(table, budget, min(depth, room), breadth, least)
