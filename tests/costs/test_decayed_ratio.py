"""A moving average of a ratio."""

import pytest

from draftwood.costs.decayed_ratio import DecayedRatio


def test_a_decayed_ratio_follows_its_observations() -> None:
    ratio = DecayedRatio(2.0, weight=3.0, half_life=1.0)
    assert ratio.value == 2.0
    ratio.add(1.0, 1.0)
    assert ratio.value == (3.0 + 1.0) / (1.5 + 1.0)
    ratio.add(0.0, 4.0)
    assert ratio.value == (2.0 + 0.0) / (1.25 + 4.0)
    for _ in range(60):
        ratio.add(5.0, 10.0)
    assert ratio.value == pytest.approx(0.5)


def test_several_observations_at_once_decay_as_much_as_one_by_one() -> None:
    at_once, one_by_one = (
        DecayedRatio(2.0, 8.0, half_life=3.0),
        DecayedRatio(2.0, 8.0, half_life=3.0),
    )
    at_once.add(7.0, 5.0, observations=4)
    for _ in range(3):
        one_by_one.add(0.0, 0.0)
    one_by_one.add(7.0, 5.0)
    assert at_once.value == pytest.approx(one_by_one.value)
