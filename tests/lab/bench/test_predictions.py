"""Counts of predictions and their outcome, checked by hand and candidate by candidate."""

from dataclasses import replace

import numpy as np
import pytest

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.predictions import (
    BINS,
    EARLY,
    Bin,
    PredictionCounts,
    Predictions,
    merged,
    predictions_of,
)
from tests.factories.bench_rows import predicting, random_steps


def tenths(**filled: Bin) -> tuple[Bin, ...]:
    """``t3=Bin(...)`` is the bin from 0.3 to 0.4; all others are empty."""
    return tuple(filled.get(f"t{k}", Bin()) for k in range(BINS))


def test_candidates_are_counted_by_source_and_tenth_by_hand() -> None:
    steps = [
        predicting(2.5, 1, ("y", 0.75, True), ("x", 0.125, False), ("x", 0.0, False)),
        predicting(1.5, 2, ("x", 0.75, True), ("x", 0.125, False), ("y", 1.0, True)),
        predicting(1.0, 0, ("y", 0.75, False)),
    ]
    found = predictions_of(steps)
    assert found.late_steps == PredictionCounts()
    assert found.all_steps == PredictionCounts(
        steps=3,
        predicted=5.0,
        committed=2 + 3 + 1,
        by_source={
            "x": tenths(t0=Bin(1, 0.0, 0), t1=Bin(2, 0.25, 0), t7=Bin(1, 0.75, 1)),
            "y": tenths(t7=Bin(2, 1.5, 1), t9=Bin(1, 1.0, 1)),
        },
    )
    assert {name: sum(bins, Bin()) for name, bins in found.all_steps.by_source.items()} == {
        "x": Bin(4, 1.0, 1),
        "y": Bin(3, 2.5, 2),
    }


@pytest.mark.parametrize(
    ("probability", "place"),
    [(0.0, 0), (0.0999, 0), (0.1, 1), (0.5, 5), (0.8999, 8), (0.9, 9), (1.0, 9)],
)
def test_a_probability_on_a_border_is_in_the_upper_bin(probability: float, place: int) -> None:
    bins = predictions_of([predicting(1.0, 0, ("x", probability, True))]).all_steps.by_source["x"]
    assert bins[place] == Bin(1, probability, 1)
    assert sum(bins, Bin()).candidates == 1


def randomly(count: int, seed: int) -> list[StepStats]:
    """Steps with up to six candidates, every third without a prediction."""
    generator = np.random.default_rng(seed)
    found = random_steps(count, seed)
    for i in range(count):
        if i % 3:
            candidates = [
                (str(generator.choice(["x", "y", "z"])), float(p), bool(generator.random() < p * p))
                for p in generator.random(int(generator.integers(0, 7)))
            ]
            accepted, number = int(generator.integers(0, 4)), int(generator.integers(100, 300))
            made = predicting(1 + 3 * generator.random(), accepted, *candidates, number=number)
            found[i] = replace(made, committed=1)  # a limit may cut off what was committed
    return found


@pytest.mark.parametrize("seed", range(3))
def test_counts_equal_those_of_a_walk_over_every_candidate(seed: int) -> None:
    steps = randomly(60, seed)
    found = predictions_of(steps)
    for forecast, first in ((found.all_steps, 1), (found.late_steps, EARLY + 1)):
        counted: dict[tuple[str, int], list[float]] = {}
        tokens = [0.0, 0, 0]
        for one in steps:
            if one.prediction is None or one.prediction.step < first:
                continue
            tokens = [
                tokens[0] + one.prediction.tokens,
                tokens[1] + len(one.path) + 1,
                tokens[2] + 1,
            ]
            labelled = one.prediction.candidates
            for i, source in enumerate(labelled.sources):
                probability = labelled.probabilities[i]
                sums = counted.setdefault((source, int(str(probability)[2])), [0, 0.0, 0])
                for k, value in enumerate((1, probability, labelled.taken[i])):
                    sums[k] += value
        assert tokens == pytest.approx([forecast.predicted, forecast.committed, forecast.steps])
        given = {
            (source, k): [one.candidates, one.predicted, one.accepted]
            for source, bins in forecast.by_source.items()
            for k, one in enumerate(bins)
            if one.candidates
        }
        assert given.keys() == counted.keys()
        for place, values in given.items():
            assert values == pytest.approx(counted[place])
        assert any(taken < n for n, _, taken in given.values())


@pytest.mark.parametrize("seed", range(3))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    steps = randomly(40, seed)
    cuts: tuple[list[StepStats], ...] = (steps[:7], steps[7:8], [], steps[8:])
    parts, whole = merged(predictions_of(part) for part in cuts), predictions_of(steps)
    for one, other in ((parts.all_steps, whole.all_steps), (parts.late_steps, whole.late_steps)):
        assert (one.steps, one.committed) == (other.steps, other.committed)
        assert one.predicted == pytest.approx(other.predicted)
        assert list(one.by_source) == list(other.by_source)
        for source, bins in one.by_source.items():
            for a, b in zip(bins, other.by_source[source], strict=True):
                assert (a.candidates, a.accepted) == (b.candidates, b.accepted)
                assert a.predicted == pytest.approx(b.predicted)
    assert merged([]) == Predictions()
