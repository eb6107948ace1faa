"""Predicted speed-ups: worked by hand."""

import pytest

from draftwood.lab.bench.aggregate import speedup, speedup_with_verification


def test_equation_7() -> None:
    # Nine draft forwards at a thirtieth of the target each: 4.2 tokens in 1.3 target times.
    assert speedup(4.2, 1 / 30, 9) == pytest.approx(4.2 / 1.3)
    assert speedup(1.0, 0.0, 0.0) == 1.0


def test_verification_counts() -> None:
    assert speedup_with_verification(4.2, 1.7, 1 / 30, 9) == pytest.approx(2.1)
    assert speedup_with_verification(3.0, 1.0, 0.1, 5) == speedup(3.0, 0.1, 5)


@pytest.mark.parametrize("costs", [(0.0, 0.1, 1), (1.0, -0.1, 1), (1.0, 0.1, -1)])
def test_impossible_costs_are_refused(costs: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        speedup_with_verification(2.0, *costs)
