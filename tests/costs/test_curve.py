"""Cost curves: the formula by hand, JSON, refusals."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.costs.curve import VERSION, Curve, StepCosts
from draftwood.errors import DraftwoodError
from draftwood.files import encode

CURVE = Curve((1, 2, 4), (10.0, 12.0, 20.0), per_context=0.5, per_pair=0.25, per_sequence=3.0)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    rises = draw(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=6))
    steps = draw(st.lists(st.integers(1, 9), min_size=len(rises), max_size=len(rises)))
    start = draw(st.floats(0.1, 10.0))
    rates = [draw(st.floats(0.0, 1.0)) for _ in range(3)]
    sizes = tuple(int(n) for n in np.cumsum([1, *steps]))
    return Curve(sizes, tuple(float(t) for t in np.cumsum([start, *rises])), *rates)


def test_the_table_is_linear_between_its_sizes() -> None:
    assert [CURVE.seconds(n) for n in (1, 2, 3, 4)] == [10.0, 12.0, 16.0, 20.0]
    assert Curve((1, 7), (1.0, 4.0)).seconds(4) == 2.5, "sizes need not be powers"


def test_beyond_the_table_the_slope_is_that_of_its_last_half() -> None:
    assert CURVE.seconds(6) == 20.0 + 2 * (20.0 - 12.0) / (4 - 2)
    # The last step alone is flat, but a larger forward is not free.
    flat = Curve((1, 2, 3, 4), (1.0, 2.0, 3.0, 3.0))
    assert flat.seconds(8) == 3.0 + 4 * (3.0 - 2.0) / (4 - 2)


def test_context_and_batch_add_their_terms() -> None:
    # 12 for two tokens, 8 cached at 0.5, 2 * 8 / 2 pairs at 0.25, one more sequence at 3.
    assert CURVE.seconds(2, context=8, batch=2) == 12.0 + 4.0 + 2.0 + 3.0


def test_no_tokens_are_no_forward() -> None:
    assert CURVE.seconds(0, 100, 4) == 0.0


@given(curves(), st.integers(0, 3000), st.integers(1, 9))
def test_a_larger_forward_is_never_cheaper(curve: Curve, context: int, batch: int) -> None:
    table = [curve.seconds(n, context, batch) for n in range(81)]
    assert np.all(np.diff(table) >= -1e-9)
    assert curve.seconds(9, context + 1, batch) >= curve.seconds(9, context, batch)


@pytest.mark.parametrize(
    ("sizes", "base", "message"),
    [
        ((1,), (1.0,), "two or more, ascending from 1"),
        ((2, 4), (1.0, 2.0), "two or more, ascending from 1"),
        ((1, 3, 3), (1.0, 2.0, 3.0), "two or more, ascending from 1"),
        ((1, 2), (1.0,), "2 sizes and 1 times"),
        ((1, 2), (0.0, 1.0), "seconds above 0"),
        ((1, 2), (1.0, float("nan")), "seconds above 0"),
        ((1, 2), (2.0, 1.0), "never cheaper"),
    ],
)
def test_invalid_curves_are_refused(
    sizes: tuple[int, ...], base: tuple[float, ...], message: str
) -> None:
    with pytest.raises(DraftwoodError, match=message):
        Curve(sizes, base)


@pytest.mark.parametrize("rate", [-1e-9, float("inf"), float("nan")])
def test_rates_are_not_negative(rate: float) -> None:
    with pytest.raises(DraftwoodError, match=r"per_pair is .* give 0 or more"):
        Curve((1, 2), (1.0, 2.0), per_pair=rate)
    with pytest.raises(DraftwoodError, match=r"node is .* give 0 or more"):
        StepCosts(CURVE, node=rate)


def test_a_step_is_the_sum_of_its_parts() -> None:
    level = Curve((1, 2), (1.0, 2.0), per_context=0.125)
    costs = StepCosts(CURVE, {"draft": level}, fixed=100.0, node=10.0, sequence=7.0)
    # Target: 3 tokens, 8 cached, one sequence. Levels of 1 and 2 nodes. Two drafted nodes.
    target = 16.0 + 8 * 0.5 + 3 * 8 * 0.25
    assert costs.step(3, 8, 1, {"draft": [1, 2]}) == target + (1 + 1) + (2 + 1) + 100 + 2 * 10
    assert costs.step(3, 8) == target + 100 + 2 * 10
    assert costs.step(3, 0, 2) == 16.0 + 3.0 + 100 + 1 * 10 + 7


@given(curves(), curves(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_json_keeps_everything(
    target: Curve, level: Curve, fixed: float, node: float, sequence: float
) -> None:
    costs = StepCosts(target, {"draft": level}, fixed, node, sequence)
    assert StepCosts.from_json(json.loads(json.dumps(costs.to_json()))) == costs


def test_other_json_is_refused() -> None:
    good = StepCosts(CURVE, {"draft": CURVE}).to_json()
    StepCosts.from_json(good)
    curve = encode(CURVE)
    bad: list[tuple[object, str]] = [
        ([], "no step costs of version"),
        ({**good, "version": VERSION + 1}, f"no step costs of version {VERSION}"),
        ({k: v for k, v in good.items() if k != "sequence"}, r"^sequence is missing; measure"),
        ({**good, "drafters": []}, r"^drafters: expected an object, found \[\]; measure"),
        ({**good, "fixed": None}, "^fixed: expected a number, found null"),
        ({**good, "fixed": True}, "^fixed: expected a number, found true"),
        ({**good, "fixed": -1}, "^fixed is -1.0 seconds: give 0 or more"),
        ({**good, "target": {"sizes": [1, 2]}}, "^target.base is missing"),
        ({**good, "target": {**curve, "base": 3}}, "^target.base: expected a list of numbers"),
        ({**good, "drafters": {"x": {**curve, "base": [1]}}}, "^drafters.x: a cost curve has 3"),
    ]
    for found, message in bad:
        with pytest.raises(DraftwoodError, match=message):
            StepCosts.from_json(found)
