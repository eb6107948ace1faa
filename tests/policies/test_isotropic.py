"""Iso(k): balanced, breadth-first, the copied token first where the match goes."""

import pytest

from draftwood.policies.isotropic import Isotropic
from tests.factories.scripted_sources import Row, Sources, offer


def plenty(token: int) -> Row:
    return [(100 + (7 * token + i) % 800, 0.5 / (i + 1)) for i in range(10)]


def widths(depths: list[int]) -> list[int]:
    return [depths.count(depth) for depth in range(max(depths) + 1)]


@pytest.mark.parametrize(
    ("k", "budget", "levels"),
    [
        (3, 59, [1, 3, 9, 27, 20]),
        (5, 59, [1, 5, 25, 29]),
        (2, 14, [1, 2, 4, 8]),
        (1, 5, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_levels_are_filled_to_the_budget(k: int, budget: int, levels: list[int]) -> None:
    sources = Sources((), plenty)
    tree = sources.grow(Isotropic(budget, k))
    assert widths(tree.depths.tolist()) == levels
    assert tree.parents.tolist()[1:] == [i // k for i in range(budget)]
    assert tree.route == "isotropic"


def test_the_copied_token_comes_first_along_the_match() -> None:
    tree = Sources(offer(11, 12, 13), plenty).grow(Isotropic())
    match = 0
    for token in (11, 12, 13):
        child = tree.child(match, token)
        assert child is not None
        assert child == tree.parents.tolist().index(match)
        assert tree.sources[child] == "context"
        match = child
    assert tree.sources.count("context") == 3
    assert widths(tree.depths.tolist()) == [1, 3, 9, 27, 20]


def test_a_successor_that_repeats_the_copied_token_makes_room_for_the_next() -> None:
    tree = Sources(offer(2), {0: [(1, 0.5), (2, 0.4), (3, 0.3)]}).grow(Isotropic(k=3))
    assert tree.tokens.tolist() == [0, 2, 1, 3]


def test_nodes_without_successors_leave_budget_to_others() -> None:
    rows = {0: [(1, 0.5), (2, 0.4)], 2: [(3, 0.5), (4, 0.5)], 3: [(5, 0.5)], 4: [(6, 0.5)]}
    sources = Sources((), rows)
    tree = sources.grow(Isotropic(budget=6, k=2))
    assert tree.tokens.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert sources.expansions == [[0], [1, 2], [3], [4]]  # never more than the budget can use


def test_no_chain_is_verified_alone() -> None:
    tree = Sources(offer(1, 2, 3, count=9, match_length=60), plenty).grow(Isotropic())
    assert tree.drafted == 59
    assert Sources(offer(1, 2, 3)).grow(Isotropic()).tokens.tolist() == [0, 1, 2, 3]
    assert Sources().grow(Isotropic()).route == "plain"
