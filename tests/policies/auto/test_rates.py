"""Token weights and decayed ratios, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.auto.rates import token_weights
from draftwood.protocols import RequestLoad


def loads(*left_and_pace: tuple[int, float]) -> list[RequestLoad]:
    return [RequestLoad(10, left, pace, 0.0) for left, pace in left_and_pace]


def seconds(left: list[float], paces: list[float], alone: float) -> float:
    """Until all requests have ended, each at its pace, in plain steps of the whole batch.

    A step of one request takes ``alone`` of such a step, and every other one adds the same to it.
    """
    others = len(left) - 1
    ends = sorted(each / pace for each, pace in zip(left, paces, strict=True))
    running = [alone + (1.0 - alone) * n / others for n in reversed(range(len(left)))]
    return sum(
        part * (end - begin)
        for part, begin, end in zip(running, [0.0, *ends[:-1]], ends, strict=True)
    )


def test_equal_requests_have_equal_token_weights() -> None:
    assert token_weights(loads((50, 3.0)), 1.0, queued=False) == [1.0]
    assert token_weights(loads((50, 3.0)), 1.0, queued=True) == [1.0]
    for queued in (False, True):
        assert token_weights(loads(*[(50, 3.0)] * 4), 0.6, queued=queued) == pytest.approx(
            [1.0] * 4
        )


def test_worked_by_hand() -> None:
    # A hundred steps and fifty: sixteen to one that the first is the last. It takes part in
    # (0.75 * 16 + 0.25) / 17 of a step, the second in (0.75 + 0.25 * 16) / 17; three tokens a step.
    two = loads((100, 1.0), (100, 2.0))
    expected = [3 * 12.25 / 17, 3 * 4.75 / 17 / 2]
    assert token_weights(two, 0.75, queued=False) == pytest.approx(expected)
    # Where others wait, each has half of the step.
    assert token_weights(two, 0.75, queued=True) == pytest.approx([1.5, 0.75])
    assert token_weights(two, 0.2, queued=True) == pytest.approx([1.5, 0.75])


@pytest.mark.parametrize("alone", [0.3, 0.7, 1.0])
def test_a_token_weighs_the_time_that_it_saves(alone: float) -> None:
    """Where there is no doubt who ends when."""
    left, paces = [10_000.0, 1_000.0, 40.0], [2.0, 3.0, 1.0]
    requests = loads(*zip(map(int, left), paces, strict=True))
    found = token_weights(requests, alone, queued=False)
    usual = 1.0 / sum(paces)  # seconds a token, with all of them running
    for place in range(3):
        fewer = [each - (i == place) for i, each in enumerate(left)]
        saved = seconds(left, paces, alone) - seconds(fewer, paces, alone)
        assert found[place] == pytest.approx(saved / usual, rel=1e-3, abs=1e-3)


@given(
    requests=st.lists(st.tuples(st.integers(1, 500), st.floats(0.5, 30.0)), min_size=1, max_size=9),
    alone=st.floats(0.05, 1.0),
    queued=st.booleans(),
)
def test_their_mean_by_pace_is_one(
    requests: list[tuple[int, float]], alone: float, queued: bool
) -> None:
    found = token_weights(loads(*requests), alone, queued=queued)
    assert min(found) > 0.0
    tokens = sum(pace for _, pace in requests)
    weighted = sum(worth * pace for worth, (_, pace) in zip(found, requests, strict=True))
    assert weighted / tokens == pytest.approx(1.0)
