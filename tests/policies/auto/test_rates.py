"""The token weights of a batch, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.auto.rates import token_weights
from draftwood.protocols import RequestLoad


def loads(*left_and_pace: tuple[int, float]) -> list[RequestLoad]:
    return [RequestLoad(10, left, pace, 0.0) for left, pace in left_and_pace]


def test_equal_requests_have_equal_token_weights() -> None:
    assert token_weights(loads((50, 3.0))) == [1.0]
    assert token_weights(loads(*[(50, 3.0)] * 4)) == pytest.approx([1.0] * 4)


def test_worked_by_hand() -> None:
    """How much is left decides nothing."""
    assert token_weights(loads((100, 1.0), (100, 2.0))) == pytest.approx([1.5, 0.75])
    assert token_weights(loads((3, 1.0), (900, 2.0))) == pytest.approx([1.5, 0.75])


def test_a_token_weighs_the_part_of_a_step_that_it_saves() -> None:
    paces = [2.0, 3.0, 1.0]
    found = token_weights(loads(*((100, pace) for pace in paces)))
    # Steps of each request that one token of it saves, of which each is a third of a step.
    saved = [1.0 / 3.0 / pace for pace in paces]
    usual = 1.0 / sum(paces)  # steps a token, with all of them running
    assert found == pytest.approx([each / usual for each in saved])


@given(
    requests=st.lists(st.tuples(st.integers(1, 500), st.floats(0.5, 30.0)), min_size=1, max_size=9)
)
def test_their_mean_by_pace_is_one(requests: list[tuple[int, float]]) -> None:
    found = token_weights(loads(*requests))
    assert min(found) > 0.0
    tokens = sum(pace for _, pace in requests)
    weighted = sum(worth * pace for worth, (_, pace) in zip(found, requests, strict=True))
    assert weighted / tokens == pytest.approx(1.0)
