"""Levels as arrays: the likeliest children, and estimates at the limits of their range."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftwood.policies._frontier import (
    Frontier,
    Level,
    certain_frontier,
    children,
    likeliest,
)
from draftwood.protocols import Candidates


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


def test_an_estimate_above_one_counts_as_one_and_no_number_as_none() -> None:
    offers = Candidates(np.array([[4, 5]]), np.array([[0.5, math.nan]], dtype=np.float32))
    found = children(certain_frontier(), offers)
    assert found.tokens.tolist() == [4]
    assert found.path.tolist() == found.logq.tolist() == [0.0]


def test_paths_do_not_underflow() -> None:
    frontier = Frontier([0], floats(-1e4))
    found = children(frontier, answer([[1, 2]], [[0.5, 0.25]]))
    assert found.path[0] > found.path[1] > -math.inf
    assert math.exp(found.path[0]) == 0.0
