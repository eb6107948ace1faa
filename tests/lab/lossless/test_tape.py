"""Enumeration by replay, and the noise of an enumerated step."""

import math
from collections.abc import Sequence

import pytest
import torch

from draftwood.lab.lossless.tape import (
    BATCH,
    EnumerationError,
    Tape,
    TapeNoise,
    TooManyOutcomesError,
    explore,
)
from draftwood.protocols import Verdict
from draftwood.sampling.noise import RequestNoise


def coins(starts: Sequence[int], tapes: Sequence[Tape]) -> list[tuple[int, ...]]:
    """A coin that falls on 1 three times in four; then as many even ones as the start says."""
    found = []
    for start, tape in zip(starts, tapes, strict=True):
        first = tape.branch((1, 3))
        rest = [tape.branch((0.5, 0.5)) for _ in range(start)] if first else []
        found.append((first, *rest))
    return found


def test_every_outcome_with_its_probability() -> None:
    none, two = explore(coins, [0, 2])
    assert dict(none) == {(0,): 0.25, (1,): 0.75}
    assert dict(two) == {
        (0,): 0.25,
        (1, 0, 0): 0.1875,
        (1, 0, 1): 0.1875,
        (1, 1, 0): 0.1875,
        (1, 1, 1): 0.1875,
    }
    assert len(two) == 5


def test_more_outcomes_than_a_batch() -> None:
    (found,) = explore(coins, [11])
    assert len(found) == 1 + 2**11 > BATCH
    assert math.isclose(sum(weight for _, weight in found), 1)
    assert len({outcome for outcome, _ in found}) == len(found)


def test_options_without_weight_are_never_taken() -> None:
    tape = Tape()
    assert tape.branch((0.0, 5.0, 0.0)) == 1
    assert tape.weight == 1
    assert not tape.forks
    assert tape.branch((0.0, 1.0, 3.0)) == 1
    assert tape.weight == 0.25
    assert tape.forks == [(1, 2)]


def test_a_prefix_is_followed() -> None:
    tape = Tape((1, 2))
    assert tape.branch((1, 1)) == 1
    finished = [tape.finished]
    assert tape.branch((2, 1, 1)) == 2
    assert [*finished, tape.finished] == [False, True]
    assert tape.weight == 0.125
    assert not tape.forks


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, -0.1), (math.nan, 1.0), (math.inf, 1.0)])
def test_weights_must_be_weights(weights: tuple[float, ...]) -> None:
    with pytest.raises(EnumerationError, match="among weights"):
        Tape().branch(weights)


def test_other_randomness_is_an_error() -> None:
    calls = iter(range(100))

    def unsteady(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1, 1) if next(calls) % 2 else (1, 0)) for tape in tapes]

    with pytest.raises(EnumerationError, match=r"add up|different|fewer"):
        explore(unsteady, [None, None])

    def lazier(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1, 1)) if not next(calls) % 2 else 0 for tape in tapes]

    calls = iter(range(100))
    with pytest.raises(EnumerationError, match="fewer questions"):
        explore(lazier, [None])

    def other(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1,) * (3 - next(calls))) for tape in tapes]

    calls = iter((0, 1, 2))
    with pytest.raises(EnumerationError, match="different questions"):
        explore(other, [None])


def test_too_many_outcomes_are_an_error() -> None:
    with pytest.raises(TooManyOutcomesError, match="more than 5"):
        explore(coins, [4], most=5)


def weights(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_the_tape_decides_for_the_noise() -> None:
    tape = Tape((1, 2))
    noise = TapeNoise(tape)
    assert noise.accepts(4, 0.25)
    assert noise.choose(1, weights(1.0, 0.0, 3.0)) == 2
    assert tape.weight == 0.25 * 0.75
    other = Tape((0,))
    assert not TapeNoise(other).accepts(4, 0.25)
    assert other.weight == 0.75


@pytest.mark.parametrize("probability", [-0.1, 0.0, 1.0, 1.5, math.nan])
def test_certain_outcomes_are_no_decisions(probability: float) -> None:
    tape = Tape()
    assert TapeNoise(tape).accepts(1, probability) is (probability >= 1)
    assert not tape.forks
    assert TapeNoise(tape).accepts(1, probability) == RequestNoise(0).accepts(1, probability)


@pytest.mark.parametrize(
    "values", [(0.0, 0.0, 0.0), (0.5, math.nan, 0.5), (0.0, math.inf, 1.0), (-1.0, 0.0, -1.0)]
)
def test_invalid_weights_are_decided_as_by_a_requests_noise(values: tuple[float, ...]) -> None:
    tape = Tape()
    found = TapeNoise(tape).choose(0, weights(*values))
    assert not tape.forks
    assert found == RequestNoise(3).choose(0, weights(*values))


def test_no_random_number_is_used_twice() -> None:
    noise = TapeNoise(Tape())
    noise.accepts(1, 0.5)
    noise.accepts(2, 0.5)
    with pytest.raises(EnumerationError, match="node 1 is tested twice"):
        noise.accepts(1, 0.5)
    noise.choose(0, weights(1.0, 1.0))
    noise.choose(1, weights(1.0, 1.0))
    with pytest.raises(EnumerationError, match="depth 1"):
        noise.choose(1, weights(1.0, 1.0))
    noise.sample(0)
    with pytest.raises(EnumerationError, match="children of node 0"):
        noise.sample(0)


def test_no_random_number_is_left_to_the_next_step() -> None:
    noise = TapeNoise(Tape())
    noise.settle(Verdict((), 0))
    noise.choose(1, weights(1.0, 1.0))
    noise.settle(Verdict((3,), 0))
    noise.settle(Verdict((3, 4), 0))
    with pytest.raises(EnumerationError, match="depth 1, but only 0 were accepted"):
        noise.settle(Verdict((), 0))


def test_a_policys_own_numbers_cannot_be_enumerated() -> None:
    with pytest.raises(EnumerationError, match="node 2"):
        TapeNoise(Tape()).draft(2)
