"""What counts as a loop, and what just misses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.loops import looping


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], False),
        ([7] * 23, False),
        ([7] * 24, True),
        (list(range(8)) * 3, True),
        (list(range(8)) * 2 + list(range(7)), False),
        (list(range(20)) * 2 + list(range(19)), False),
        (list(range(20)) * 3, True),
        (list(range(100)), False),
    ],
    ids=["empty", "short", "one", "block", "cut", "twice", "long", "none"],
)
def test_looping_needs_three_blocks_and_24_tokens(tokens: list[int], expected: bool) -> None:
    assert looping(tokens) is expected


def test_looping_looks_at_the_end_only() -> None:
    loop = [1, 2, 3] * 10
    assert looping([9, 8, 7, *loop])
    assert not looping([*loop, 9])


def test_looping_accepts_an_unfinished_last_block() -> None:
    assert looping([*([1, 2, 3, 4, 5, 6, 7, 8] * 3), 1, 2, 3])


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), min_size=1))
def test_any_block_repeated_often_loops(before: list[int], block: list[int]) -> None:
    assert looping(before + block * max(3, -(-24 // len(block))))


@given(st.lists(st.integers(0, 1), max_size=23))
def test_fewer_than_24_tokens_never_loop(tokens: list[int]) -> None:
    assert not looping(tokens)
