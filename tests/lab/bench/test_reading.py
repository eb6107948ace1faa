"""A document as typed values, and the sentences about what is not one."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.acceptance import RankCount
from draftwood.lab.bench.document import SCHEMA as WRITTEN
from draftwood.lab.bench.forecast import Bin
from draftwood.lab.bench.plots.reading import SCHEMA, read
from draftwood.lab.bench.plots.record import DepthRate, Estimate, SourceRate
from tests.lab.bench.documents import TASKS, document, method, metrics


def test_the_schema_that_is_read_is_the_one_that_is_written() -> None:
    assert SCHEMA == WRITTEN


def test_figures_arrive_where_they_belong() -> None:
    record = read(document())
    assert record.names == ("ar", "goose:budget=16", "pld", "hf")
    assert [m.name for m in record.by_speed] == ["goose:budget=16", "pld", "ar", "hf"]
    assert record.tasks == TASKS
    goose = record.methods[1]
    assert goose.all.speedup == Estimate(2.0, 1.9, 2.1)
    assert goose.all.tau == Estimate(2.5, 2.45, 2.55)
    assert goose.without_looping.tau.middle == 0.8 * 2.5
    depth = goose.all.by_depth[1]
    assert depth == DepthRate(2, 88, depth.rate)
    assert depth.rate == Estimate(0.4, 0.4 - 0.05, 0.4 + 0.05)
    source = goose.all.by_source[0]
    assert source == SourceRate("adjacency", 800, 120, source.rate)
    assert source.rate.middle == 0.15
    assert goose.all.by_rank[4] == RankCount(2, 2, 20, 6)
    assert record.methods[3].all.time_share == {}
    assert [m.reliability is None for m in record.methods] == [True, False, False, True]
    assert goose.reliability is not None
    whole, late = goose.reliability
    assert (whole.steps, whole.expected, whole.committed) == (80, 210.0, 200)
    assert (late.steps, late.expected, late.committed) == (20, 44.0, 40)
    adjacency, context = whole.by_source
    assert (adjacency.source, adjacency.candidates, adjacency.taken) == ("adjacency", 440, 36)
    assert adjacency.bins[4] == Bin(40, 18.0, 20)
    assert context.error.middle == pytest.approx(0.0)
    step = record.excerpts[0].steps[0]
    assert step.committed[2:] == ((" a", "adjacency"), (" +", ""))
    assert record.excerpts[0].trees[0].path == (1, 2, 3)


def test_methods_without_a_speed_come_last() -> None:
    methods = {"slow": method(metrics(None)), "ar": method(metrics(1.0))}
    assert [m.name for m in read(document(methods=methods)).by_speed] == ["ar", "slow"]


@pytest.mark.parametrize("wrong", [None, [], "text", 3, {}, {"methods": {}}])
def test_what_is_no_document_is_refused(wrong: object) -> None:
    with pytest.raises(DraftwoodError, match="not a 'bench --json' file"):
        read(wrong)


@pytest.mark.parametrize("schema", [1, 2, "3", None])
def test_other_schemas_are_refused(schema: object) -> None:
    with pytest.raises(DraftwoodError, match=r"schema .*, and schema 3 is read: run the bench"):
        read(document(schema=schema))


def _drop(path: str) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        *keys, last = path.split("/")
        for key in keys:
            found = found[int(key) if key.isdigit() else key]
        del found[last]

    return change


def _put(path: str, value: object) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("/"))
        for key in keys:
            found = found[key]
        found[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_drop("excerpts"), "has no excerpts$"),
        (_drop("methods/pld/without_looping"), r"has no methods\.pld\.without_looping$"),
        (_drop("methods/pld/by_task/code/prompts"), r"has no methods\.pld\.by_task\.code\.prompts"),
        (_put("methods", []), r"document's methods should be an object, and is \[\]"),
        (_put("complete", 1), "complete should be true or false, and is 1"),
        (_put("missing/hf-assistant", 1), r"missing\.hf-assistant should be a text, and is 1"),
        (_put("methods/pld/prompts", -1), "prompts should be a whole number from 0 up, and is -1"),
        (_put("methods/pld/tokens", 1.5), "tokens should be a whole number, and is 1.5"),
        (_put("methods/pld/tokens", True), "tokens should be a whole number, and is True"),
        (_put("methods/pld/peak_memory_mb", "x"), "should be a number or null, and is 'x'"),
        (_put("methods/pld/peak_memory_mb", math.nan), "a finite number or null, and is nan"),
        (_put("methods/pld/acceptance_by_depth", {}), "should be a list, and is {}"),
        (_put("excerpts/0/steps/1/route", None), r"excerpts\[0\]\.steps\[1\]\.route should be"),
        (
            _put("methods/pld/reliability/all_steps/expected", None),
            r"reliability\.all_steps\.expected should be a number from 0 up, and is None",
        ),
        (_put("methods/pld/reliability/late_steps/expected", -1.0), "from 0 up, and is -1.0"),
        (_drop("methods/pld/reliability/late_steps"), r"has no methods\.pld\.reliability\.late"),
        (_put("methods/pld/reliability", None), r"pld\.reliability should be an object"),
        (_put("excerpts/0/prompt", ["x" * 99]), r"is \['x{58}…"),
    ],
)
def test_the_wrong_place_is_named(change: Callable[[Any], None], complaint: str) -> None:
    made = document()
    change(made)
    with pytest.raises(DraftwoodError, match=complaint):
        read(made)
