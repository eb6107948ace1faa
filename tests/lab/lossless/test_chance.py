"""A step's chance: what it decides, and who is refused because real numbers would repeat."""

import math

import pytest
import torch

from draftwood.lab.lossless.tape import Chance, ChanceError, Tape
from draftwood.protocols import Verdict
from draftwood.sampling.noise import RequestNoise


def weights(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_decisions_are_the_tapes() -> None:
    tape = Tape((1, 2))
    chance = Chance(tape)
    assert chance.accepts(4, 0.25)
    assert chance.choose(1, weights(1.0, 0.0, 3.0)) == 2
    assert tape.weight == 0.25 * 0.75
    other = Tape((0,))
    assert not Chance(other).accepts(4, 0.25)
    assert other.weight == 0.75


@pytest.mark.parametrize("probability", [-0.1, 0.0, 1.0, 1.5, math.nan])
def test_what_is_certain_is_no_decision(probability: float) -> None:
    tape = Tape()
    assert Chance(tape).accepts(1, probability) is (probability >= 1)
    assert not tape.forks
    assert Chance(tape).accepts(1, probability) == RequestNoise(0).accepts(1, probability)


@pytest.mark.parametrize(
    "values", [(0.0, 0.0, 0.0), (0.5, math.nan, 0.5), (0.0, math.inf, 1.0), (-1.0, 0.0, -1.0)]
)
def test_weights_without_a_share_are_decided_as_by_real_numbers(values: tuple[float, ...]) -> None:
    tape = Tape()
    found = Chance(tape).choose(0, weights(*values))
    assert not tape.forks
    assert found == RequestNoise(3).choose(0, weights(*values))


def test_numbers_are_not_used_twice() -> None:
    chance = Chance(Tape())
    chance.accepts(1, 0.5)
    chance.accepts(2, 0.5)
    with pytest.raises(ChanceError, match="node 1 is judged twice"):
        chance.accepts(1, 0.5)
    chance.choose(0, weights(1.0, 1.0))
    chance.choose(1, weights(1.0, 1.0))
    with pytest.raises(ChanceError, match="depth 1"):
        chance.choose(1, weights(1.0, 1.0))
    chance.sample(0)
    with pytest.raises(ChanceError, match="children of node 0"):
        chance.sample(0)


def test_numbers_are_not_left_to_the_next_step() -> None:
    chance = Chance(Tape())
    chance.settle(Verdict((), 0))
    chance.choose(1, weights(1.0, 1.0))
    chance.settle(Verdict((3,), 0))
    chance.settle(Verdict((3, 4), 0))
    with pytest.raises(ChanceError, match="depth 1, but only 0 were accepted"):
        chance.settle(Verdict((), 0))


def test_a_policys_own_numbers_cannot_be_enumerated() -> None:
    with pytest.raises(ChanceError, match="node 2"):
        Chance(Tape()).draft(2)
