"""From rows to the errors of what was foretold, worked out by hand."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.aggregate import Baselines
from draftwood.lab.bench.document import document, method_entry
from draftwood.lab.bench.forecast import forecasts_of
from draftwood.lab.bench.plots.reading import read
from draftwood.lab.bench.plots.record import Estimate
from draftwood.lab.bench.reliability import reliability
from draftwood.lab.bench.rows import Row, row_of
from tests.factories.bench_rows import row, run, step, told, tree, turn

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "bench.md"
ALIKE = [
    told(4.0, 1, ("x", 0.5, True), ("x", 0.25, False), ("y", 0.75, False)),
    told(2.0, 1, ("x", 0.75, True), number=201),
]
"""6 tokens expected and 4 committed; of x 1.5 of 3 candidates and 2, of y 0.75 and none."""


def of(*groups: list[Any]) -> list[Row]:
    """A row for each group of prompts, with these steps."""
    return [row(f"a/{i}", group=i, forecasts=forecasts_of(steps)) for i, steps in enumerate(groups)]


def test_an_error_is_what_was_expected_over_what_came_less_one() -> None:
    found = reliability(of(ALIKE))
    assert found is not None
    whole = found.all_steps
    assert (whole.steps, whole.expected, whole.committed) == (2, 6.0, 4)
    assert whole.error.value == pytest.approx(0.5)
    x, y = whole.by_source["x"], whole.by_source["y"]
    assert (x.candidates, x.expected, x.taken) == (3, 1.5, 2)
    assert x.error.value == pytest.approx(-0.25)
    assert (y.candidates, y.expected, y.taken) == (1, 0.75, 0)
    assert math.isnan(y.error.value), "none was taken"
    assert [(one.candidates, one.taken) for one in x.bins[2:8]] == [
        *((1, 0), (0, 0), (0, 0), (1, 1), (0, 0), (1, 1)),
    ]
    late = found.late_steps
    assert (late.steps, late.expected, late.committed) == (1, 2.0, 2)
    assert late.error.value == 0.0
    assert list(late.by_source) == ["x"]
    assert late.by_source["x"].error.value == pytest.approx(-0.25)


def test_groups_are_pooled_and_are_what_is_drawn_anew() -> None:
    other = [told(1.0, 1, ("y", 0.25, True))]
    found = reliability(of(ALIKE, other))
    assert found is not None
    whole = found.all_steps
    assert whole.error.value == pytest.approx(7 / 6 - 1)
    # Both groups drawn are the one or the other, or there is one of each.
    assert (whole.error.low, whole.error.high) == pytest.approx((1 / 2 - 1, 6 / 4 - 1))
    assert whole.by_source["y"].error.value == pytest.approx(0.0)
    alike = reliability(of(ALIKE, ALIKE))
    assert alike is not None
    assert astuple(alike.all_steps.error) == pytest.approx((0.5, 0.5, 0.5))


def test_repeats_and_turns_belong_to_their_group() -> None:
    turns = [turn((1,), forecasts=forecasts_of([one])) for one in ALIKE]
    once, twice = row_of(run(*turns), None), row_of(run(*turns, repeat=1), None)
    found = reliability([once, twice])
    assert found is not None
    assert (found.all_steps.steps, found.late_steps.steps) == (4, 2)
    assert found.all_steps.error.value == pytest.approx(0.5)
    assert math.isnan(found.all_steps.error.low), "one group has no interval"


def test_a_method_that_foretells_nothing_has_no_entry() -> None:
    assert reliability(of([step(tree([-1, 0]), (1,))])) is None
    assert reliability([]) is None
    assert "reliability" not in method_entry(of([]), Baselines(), [], {})


def written() -> dict[str, Any]:
    """A document as it comes off the disk, its steps of one group."""
    rows = [row(forecasts=forecasts_of(ALIKE), acceptance=acceptance_of(ALIKE))]
    entries = {
        "ar": method_entry(of([]), Baselines(), [], {}),
        "auto": method_entry(rows, Baselines(), [], {}),
    }
    found = document({}, entries, {}, [], complete=True)
    back: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return back


def test_what_is_written_is_what_is_read() -> None:
    found = written()
    plain = found["methods"]["auto"]["reliability"]
    assert plain["all_steps"]["error"] == {"value": 0.5, "low": None, "high": None}
    assert plain["all_steps"]["by_source"]["y"]["error"]["value"] is None
    assert plain["all_steps"]["by_source"]["y"]["bins"][7] == {
        "candidates": 1,
        "expected": 0.75,
        "taken": 0,
    }
    ar, auto = read(found).methods
    assert ar.reliability is None
    assert auto.reliability is not None
    whole, late = auto.reliability
    assert (whole.steps, late.steps) == (2, 1)
    assert whole.error == Estimate(0.5, None, None)
    x, y = whole.by_source
    assert (x.source, x.candidates, x.expected, x.taken) == ("x", 3, 1.5, 2)
    assert [one.taken for one in x.bins] == [0, 0, 0, 0, 0, 1, 0, 1, 0, 0]
    assert y.error == Estimate(None, None, None)


def keys(found: object) -> Iterator[str]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield key
            yield from keys(value)
    elif isinstance(found, list):
        for value in found:
            yield from keys(value)


def test_every_member_is_defined_in_the_documentation() -> None:
    page = DOCUMENTATION.read_text(encoding="utf-8")
    section = page[page.index("**Reliability.**") :].split("\n\n**")[0]
    found = set(keys(written()["methods"]["auto"]["reliability"])) - {"x", "y"}
    assert {"all_steps", "bins", "taken", "error"} <= found
    for key in found - {"value", "low", "high"}:
        assert f"`{key}`" in section, key
