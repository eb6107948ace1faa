"""Enumeration by replay: outcomes and weights by hand, and what cannot be enumerated."""

import math
from collections.abc import Sequence

import pytest

from draftwood.lab.lossless.tape import BATCH, ChanceError, Tape, TooManyOutcomesError, explore


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
    with pytest.raises(ChanceError, match="among weights"):
        Tape().branch(weights)


def test_chance_from_elsewhere_is_noticed() -> None:
    calls = iter(range(100))

    def unsteady(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1, 1) if next(calls) % 2 else (1, 0)) for tape in tapes]

    with pytest.raises(ChanceError, match=r"add up|different|fewer"):
        explore(unsteady, [None, None])

    def lazier(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1, 1)) if not next(calls) % 2 else 0 for tape in tapes]

    calls = iter(range(100))
    with pytest.raises(ChanceError, match="fewer questions"):
        explore(lazier, [None])

    def other(starts: Sequence[None], tapes: Sequence[Tape]) -> list[int]:
        return [tape.branch((1,) * (3 - next(calls))) for tape in tapes]

    calls = iter((0, 1, 2))
    with pytest.raises(ChanceError, match="different questions"):
        explore(other, [None])


def test_giving_up() -> None:
    with pytest.raises(TooManyOutcomesError, match="more than 5"):
        explore(coins, [4], most=5)
