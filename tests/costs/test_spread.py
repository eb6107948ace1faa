"""Costs that are charged to later steps."""

import pytest

from draftwood.costs.spread import Spread


def test_all_that_was_spent_is_charged_in_the_end() -> None:
    spread = Spread()
    assert spread.take() == 0.0
    spread.add(6.0, 10.0)
    assert spread.take() == pytest.approx(0.6)
    assert spread.take() == pytest.approx(0.54)
    spread.add(4.86, 30.0)  # as much as is left: 20 steps gain, on average
    assert spread.take() == pytest.approx(2 * 4.86 / 20.0)
    assert sum(spread.take() for _ in range(400)) == pytest.approx(2 * 4.86 * 19 / 20)
