"""Constrained least squares against scipy and against brute force."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from draftwood.costs.fit import isotonic, nnls


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 6))
def test_nonnegative_least_squares_is_scipys(seed: int, extra: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n + extra, n)) * 10.0 ** rng.integers(-3, 4, size=n)
    b = rng.normal(size=n + extra)
    found, (_, residual) = nnls(a, b), optimize.nnls(a, b)
    assert found.min() >= 0.0
    assert np.linalg.norm(a @ found - b) == pytest.approx(residual, rel=1e-6, abs=1e-9)


def test_an_unreachable_target_gives_zero() -> None:
    assert nnls(np.eye(3), -np.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_isotonic_by_hand() -> None:
    assert isotonic([1.0, 3.0, 2.0, 4.0], [1, 1, 1, 1]) == [1.0, 2.5, 2.5, 4.0]
    assert isotonic([1.0, 3.0, 2.0, 4.0], [1, 3, 1, 1]) == [1.0, 2.75, 2.75, 4.0]
    assert isotonic([3.0, 2.0, 1.0], [1, 1, 1]) == [2.0, 2.0, 2.0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_no_rising_sequence_is_nearer(values: list[int]) -> None:
    found = isotonic([float(v) for v in values], [1.0] * len(values))
    assert all(a <= b for a, b in pairwise(found))

    def off(other: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(other, values, strict=True))

    grid = np.linspace(0, 4, 13).tolist()
    rising = (list(o) for o in product(grid, repeat=len(values)) if list(o) == sorted(o))
    assert off(found) <= min(map(off, rising)) + 1e-9
