"""Relative errors of predictions, worked out by hand."""

from dataclasses import astuple
from typing import Any

import pytest

from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.predictions import predictions_of
from draftwood.lab.bench.reliability import reliability
from draftwood.lab.bench.rows import row_of
from tests.factories.bench_rows import predicting, row, run, step, tree, turn

ALIKE = [
    predicting(4.0, 1, ("x", 0.5, True), ("x", 0.25, False), ("y", 0.75, False)),
    predicting(2.0, 1, ("x", 0.75, True), number=201),
]
"""6 tokens expected and 4 committed; of x 1.5 of 3 candidates and 2, of y 0.75 and none."""


def of(*groups: list[Any]) -> list[RunRow]:
    """A row for each group of prompts, with these steps."""
    return [
        row(f"a/{i}", group=i, forecasts=predictions_of(steps)) for i, steps in enumerate(groups)
    ]


def test_an_error_is_predicted_over_observed_less_one() -> None:
    found = reliability(of(ALIKE))
    assert found is not None
    whole = found.all_steps
    assert (whole.steps, whole.predicted, whole.committed) == (2, 6.0, 4)
    assert whole.error.value == pytest.approx(0.5)
    x, y = whole.by_source["x"], whole.by_source["y"]
    assert (x.candidates, x.predicted, x.accepted) == (3, 1.5, 2)
    assert x.error.value == pytest.approx(-0.25)
    assert (y.candidates, y.predicted, y.accepted) == (1, 0.75, 0)
    assert y.error.value is None, "none was taken"
    assert [(one.candidates, one.accepted) for one in x.bins[2:8]] == [
        *((1, 0), (0, 0), (0, 0), (1, 1), (0, 0), (1, 1)),
    ]
    late = found.late_steps
    assert (late.steps, late.predicted, late.committed) == (1, 2.0, 2)
    assert late.error.value == 0.0
    assert list(late.by_source) == ["x"]
    assert late.by_source["x"].error.value == pytest.approx(-0.25)


def test_groups_are_pooled_and_are_what_is_drawn_anew() -> None:
    other = [predicting(1.0, 1, ("y", 0.25, True))]
    found = reliability(of(ALIKE, other))
    assert found is not None
    whole = found.all_steps
    assert whole.error.value == pytest.approx(7 / 6 - 1)
    assert whole.by_source["y"].error.value == pytest.approx(0.0)
    alike = reliability(of(*[ALIKE] * 6))
    assert alike is not None
    assert astuple(alike.all_steps.error) == pytest.approx((0.5, 0.5, 0.5))


def test_repeats_and_turns_belong_to_their_group() -> None:
    turns = [turn((1,), forecasts=predictions_of([one])) for one in ALIKE]
    once, twice = row_of(run(*turns), None), row_of(run(*turns, repeat=1), None)
    found = reliability([once, twice])
    assert found is not None
    assert (found.all_steps.steps, found.late_steps.steps) == (4, 2)
    assert found.all_steps.error.value == pytest.approx(0.5)
    assert found.all_steps.error.low is None, "one group has no interval"


def test_a_method_without_predictions_has_no_reliability() -> None:
    assert reliability(of([step(tree([-1, 0]), (1,))])) is None
    assert reliability([]) is None
    assert method_entry("x", of([]), Baselines(), [], {}).reliability is None
