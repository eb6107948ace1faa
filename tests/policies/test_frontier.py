"""Levels as arrays: what is offered, which are the likeliest, and what a tree makes of them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftwood.policies._frontier import (
    Frontier,
    Level,
    certain_children,
    certain_frontier,
    children,
    join,
    lay_copied,
    likeliest,
    log_probability,
    promote,
    transplant,
)
from draftwood.protocols import Candidates, Continuation, Continue
from draftwood.tree import ROOT, TreeBuilder


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def answer(tokens: list[list[int]], probabilities: list[list[float]]) -> Candidates:
    with np.errstate(divide="ignore"):
        logq = np.log(np.array(probabilities, dtype=np.float64)).astype(np.float32)
    return Candidates(np.array(tokens, dtype=np.int64), logq)


def level(parents: list[int], tokens: list[int], path: list[float]) -> Level:
    given = np.array(path, dtype=np.float64)
    return Level(np.array(parents), np.array(tokens), given - 0.25, given)


@given(st.lists(st.integers(-4, 0), max_size=12), st.integers(-1, 14))
def test_likeliest_is_the_front_of_a_stable_sort(values: list[int], n: int) -> None:
    path = np.array(values, dtype=np.float64)
    ranked = sorted(range(len(values)), key=lambda i: -values[i])[: max(0, n)]
    found = likeliest(path, n)
    assert found.tolist() == sorted(ranked)
    assert found.dtype == np.int64
    whole = level(list(range(len(values))), list(range(len(values))), [float(v) for v in values])
    assert whole.likeliest(n).tokens.tolist() == sorted(ranked)
    assert whole.best_first(n).tokens.tolist() == ranked


@given(st.data())
def test_the_likeliest_of_joined_levels_are_closed_under_parents(data: st.DataObject) -> None:
    parents = [-1] + [data.draw(st.integers(0, i)) for i in range(data.draw(st.integers(0, 12)))]
    path = [0.0]
    for parent in parents[1:]:
        path.append(path[parent] + data.draw(st.sampled_from([0.0, 0.0, -1.0])))
    chosen = set(likeliest(np.array(path), data.draw(st.integers(1, 14))).tolist())
    assert all(parents[i] in chosen for i in chosen if i)


def test_children_are_what_is_offered_parent_by_parent() -> None:
    frontier = Frontier([3, 5], np.log(floats(0.5, 0.25)))
    found = children(frontier, answer([[7, 8, -1], [9, 7, 6]], [[0.5, 0.25, 0.0], [1.0, 0.5, 0.0]]))
    assert found.parents.tolist() == [3, 3, 5, 5]
    assert found.tokens.tolist() == [7, 8, 9, 7]
    assert np.exp(found.logq) == pytest.approx([0.5, 0.25, 1.0, 0.5])
    assert np.exp(found.path) == pytest.approx([0.25, 0.125, 0.25, 0.125])
    assert found.path.dtype == np.float64


def test_children_by_widths() -> None:
    frontier = Frontier([0, 1, 2], np.zeros(3))
    offers = answer([[4, 5, 6]] * 3, [[0.5, 0.3, 0.2]] * 3)
    found = children(frontier, offers, np.array([1, 0, 3]))
    assert list(zip(found.parents.tolist(), found.tokens.tolist(), strict=True)) == [
        (0, 4),
        (2, 4),
        (2, 5),
        (2, 6),
    ]


def test_an_estimate_above_one_counts_as_one_and_no_number_as_none() -> None:
    offers = Candidates(np.array([[4, 5]]), np.array([[0.5, math.nan]], dtype=np.float32))
    found = children(certain_frontier(), offers)
    assert found.tokens.tolist() == [4]
    assert found.path.tolist() == found.logq.tolist() == [0.0]


def test_nothing_offered() -> None:
    found = children(certain_frontier(), answer([[-1, -1]], [[0.0, 0.0]]))
    assert len(found) == len(join([certain_children(), found])) == 0
    assert promote(TreeBuilder(0), found, "a").nodes == []


def test_paths_do_not_underflow() -> None:
    frontier = Frontier([0], floats(-1e4))
    found = children(frontier, answer([[1, 2]], [[0.5, 0.25]]))
    assert found.path[0] > found.path[1] > -math.inf
    assert math.exp(found.path[0]) == 0.0


def test_a_frontier_is_narrowed_by_a_mask() -> None:
    narrowed = Frontier([4, 6, 9], floats(-1, -2, -3)).where(np.array([True, False, True]))
    assert narrowed.nodes == [4, 9]
    assert narrowed.path.tolist() == [-1, -3]


def test_join_keeps_the_order() -> None:
    joined = join([level([0], [1], [-1]), level([1, 1], [2, 3], [-2, -3])])
    assert joined.tokens.tolist() == [1, 2, 3]
    assert joined.parents.tolist() == [0, 1, 1]
    assert joined.logq.tolist() == [-1.25, -2.25, -3.25]


def test_promotion_stops_at_the_budget() -> None:
    builder = TreeBuilder(9)
    offers = level([0, 0, 0], [1, 2, 3], [-1, -2, -3])
    frontier = promote(builder, offers, "a", budget=2)
    assert frontier.nodes == [1, 2]
    assert frontier.path.tolist() == [-1, -2]
    assert builder.tokens == [9, 1, 2]
    assert builder.logq == [0.0, -1.25, -2.25]
    assert promote(builder, offers, "a", budget=2).nodes == []
    assert promote(builder, offers, "a").nodes == [1, 2, 3]


def test_promoting_a_known_node_costs_nothing() -> None:
    builder = TreeBuilder(9)
    builder.add_chain([2], "b")
    frontier = promote(builder, level([0, 0, 0], [1, 2, 3], [-1, -2, -3]), "a", budget=3)
    assert frontier.nodes == [2, 1, 3]
    assert builder.sources == ["root", "b", "a", "a"]


def test_a_transplant_holds_the_chosen_alone() -> None:
    grown = TreeBuilder(9)
    first = level([0, 0], [1, 2], [-1, -2])
    promote(grown, first, "a")
    second = level([1, 2, 2], [5, 5, 6], [-3, -4, -5])
    promote(grown, second.take(np.array([2])), "a")  # node 3, token 6 below token 2
    third = level([3], [7], [-6])
    chosen = join([first, second, third]).take(np.array([1, 3, 4, 5]))
    tree = transplant(grown, chosen, "a").build()
    assert tree.tokens.tolist() == [9, 2, 5, 6, 7]
    assert tree.parents.tolist() == [-1, 0, 1, 1, 3]
    assert tree.logq.tolist() == [0.0, -2.25, -4.25, -5.25, -6.25]
    assert tree.sources == ("root", "a", "a", "a", "a")
    assert len(grown) == 4


def lay(builder: TreeBuilder, most: int, offers: tuple[Continuation, ...]) -> list[Any]:
    growing = lay_copied(builder, "copy", most)
    asked: list[Any] = []
    sent: Any = None
    while True:
        try:
            asked.append(growing.send(sent))
        except StopIteration:
            return asked
        sent = offers


def test_the_preferred_continuation_is_laid() -> None:
    offers = (Continuation((4, 5, 6), 3, 1, 1), Continuation((8,), 3, 1, 1))
    builder = TreeBuilder(9)
    assert lay(builder, 2, offers) == [Continue("copy")]
    assert builder.tokens == [9, 4, 5]
    assert builder.parents == [-1, ROOT, 1]
    assert builder.sources[1:] == ["copy", "copy"]
    assert lay(TreeBuilder(9), 0, offers) == []
    empty = TreeBuilder(9)
    assert lay(empty, 5, ()) == [Continue("copy")]
    assert empty.drafted == 0


def test_the_log_of_a_threshold() -> None:
    assert log_probability(0.0) == -math.inf
    assert log_probability(0.5) == math.log(0.5)
