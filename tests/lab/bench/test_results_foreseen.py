"""Rivals chosen on the other groups, worked out by hand, and what mere luck comes to."""

from collections.abc import Sequence
from math import log
from statistics import mean, median

import numpy as np
import pytest

from tests.lab.bench.kept_runs import module, needs_runs

pytestmark = needs_runs


def timed(*speeds: float) -> dict[tuple[int, int], float]:
    """Groups 0, 1, ... with one seed."""
    return {(group, 0): speed for group, speed in enumerate(speeds)}


def over(own: Sequence[float], **others: Sequence[float]) -> list[float]:
    found: list[float] = module("foreseen").over_foreseen(
        {"auto": timed(*own)}, {name: timed(*speeds) for name, speeds in others.items()}
    )
    return found


def test_the_luckiest_wins_afterwards_and_not_in_advance() -> None:
    steady, lucky = (10.0, 10.0, 10.0), (12.0, 11.0, 2.0)
    assert median(lucky) > median(steady)
    # On the other two: 6.5, 7 and 11.5, so it is the rival of the last group alone.
    assert over((15.0, 20.0, 10.0), steady=steady, lucky=lucky) == [1.5, 2.0, 5.0]


def test_variants_are_chosen_in_the_same_way() -> None:
    own = {"auto": timed(15.0, 20.0, 10.0), "auto:budget=8": timed(18.0, 26.0, 4.0)}
    # The second variant makes 15, 11 and 22 on the other two, the first 15, 12.5 and 17.5.
    found = module("foreseen").over_foreseen(own, {"goose": timed(2.0, 2.0, 2.0)})
    assert found == [9.0, 10.0, 2.0]


def test_ratios_are_of_the_same_group_and_seed() -> None:
    own = {"auto": {(0, 0): 10.0, (0, 1): 40.0, (0, 2): 99.0, (1, 0): 30.0}}
    others = {"goose": {(0, 0): 5.0, (0, 1): 10.0, (1, 0): 10.0, (2, 0): 1.0}}
    # Medians of 2 and 4, and 3: seed 2 and group 2 have nothing to be held against.
    assert module("foreseen").over_foreseen(own, others) == [3.0, 3.0]


def test_a_rival_was_measured_where_it_is_held_against() -> None:
    own = {"auto": timed(10.0, 10.0)}
    # What is best on group 1 is no rival on group 0, and there was nothing to choose it by.
    others = {"goose": timed(5.0, 4.0), "talon": {(1, 0): 20.0}}
    assert module("foreseen").over_foreseen(own, others) == [2.0, 2.5]


def test_one_group_or_one_ratio_is_too_little() -> None:
    assert over((10.0,), goose=(5.0,)) == []
    assert over((10.0, 10.0), goose=(5.0,)) == []
    assert over((10.0, 10.0)) == []
    lone = {"goose": {(0, 0): 5.0, (2, 0): 4.0}}
    assert module("foreseen").over_foreseen({"auto": timed(10.0, 10.0)}, lone) == []


def test_luck_alone_comes_to_nothing_in_advance() -> None:
    # Twenty equals and one more, by a clock that wanders by a third.
    chance = np.random.default_rng(0)
    advance, afterwards = [], []
    for own, *others in np.exp(0.3 * chance.standard_normal((300, 21, 3))).tolist():
        named = {str(i): speeds for i, speeds in enumerate(others)}
        advance += [log(ratio) for ratio in over(own, **named)]
        afterwards.append(log(median(own) / max(map(median, others))))
    # 900 ratios of spread 0.3 times the root of two: a standard error of about 0.015.
    assert abs(mean(advance)) < 0.04
    assert mean(afterwards) < -0.3


def test_the_mean_is_of_the_medians_of_sets() -> None:
    assert module("foreseen").mean_of_medians([1.0, 2.0, 9.0], [4.0, 6.0]) == 3.5


def test_the_interval_draws_each_set_by_itself() -> None:
    interval = module("foreseen").interval
    # Medians of 0, 1 and 2 with chances of 1, 2 and 1 in 4; the sum of three is 0 in one of 64
    # draws and at most 1 in seven of 64, so that 2.5 % lie below 1 and above 5.
    assert interval([[0.0, 2.0]] * 3) == pytest.approx((1 / 3, 5 / 3))
    # The least and the greatest are each the median in 7 of 27 draws.
    assert interval([[1.0, 2.0, 4.0]]) == (1.0, 4.0)
    assert interval([[2.0, 2.0], [3.0, 3.0, 3.0]]) == (2.5, 2.5)
    assert interval([[1.0, 2.0, 4.0], [3.0, 8.0]]) == interval([[1.0, 2.0, 4.0], [3.0, 8.0]])
