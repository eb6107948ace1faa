"""Fading ratios, worked out by hand."""

import pytest

from draftwood.policies.auto.fading import Ratio


def test_it_starts_somewhere_and_follows_what_happens() -> None:
    ratio = Ratio(2.0, weight=3.0, half_life=1.0)
    assert ratio.value == 2.0
    ratio.add(1.0, 1.0)
    assert ratio.value == (3.0 + 1.0) / (1.5 + 1.0)
    ratio.add(0.0, 4.0)
    assert ratio.value == (2.0 + 0.0) / (1.25 + 4.0)
    for _ in range(60):
        ratio.add(5.0, 10.0)
    assert ratio.value == pytest.approx(0.5)


def test_several_observations_at_once_fade_as_much_as_one_by_one() -> None:
    at_once, one_by_one = Ratio(2.0, 8.0, half_life=3.0), Ratio(2.0, 8.0, half_life=3.0)
    at_once.add(7.0, 5.0, observations=4)
    for _ in range(3):
        one_by_one.add(0.0, 0.0)
    one_by_one.add(7.0, 5.0)
    assert at_once.value == pytest.approx(one_by_one.value)
