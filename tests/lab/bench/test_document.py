"""The document: written and read by the same classes, and refused with the place of a fault."""

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.files import encode, write_json
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.document import (
    SCHEMA,
    Committed,
    Divergence,
    Document,
    Excerpt,
    MethodResult,
    PublishedAndBest,
    Searched,
    StepExcerpt,
    TreeExcerpt,
    load,
    read,
    summary,
)
from draftwood.lab.bench.figures import (
    Metrics,
    Reliabilities,
    Reliability,
    RunRow,
    SourceReliability,
)
from draftwood.lab.bench.predictions import Bin, predictions_of
from tests.factories.bench_rows import predicting, row, step, tree
from tests.lab.bench.documents import TASKS, document, method, metrics, parsed

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "bench.md"


def entry() -> MethodResult:
    steps = [
        step(tree([-1, 0, 0], sources=["root", "x", "y"]), (2,)),
        predicting(2.5, 1, ("x", 0.75, True), ("y", 0.25, False)),
    ]
    counts = acceptance_of(steps)
    rows = [
        row("a", acceptance=counts, forecasts=predictions_of(steps)),
        row("b", group=1, tokens=1, acceptance=counts),
    ]
    found = [
        Divergence("a", 0, 0, 0, 3, 1, 2, 1e-7, 1e-5, True),
        Divergence("b", 0, 0, 0, 0, 1, 2, 0.5),
    ]
    return method_entry("goose", rows, Baselines(rows), found, {"budget": 59})


def written() -> Document:
    shown = (StepExcerpt("spine", 1, 1, (Committed("a", ""),), ("b",)),)
    trees = (TreeExcerpt(0, (-1, 0), ("a", "b"), ("root", "x"), (1,), "c"),)
    return Document(
        SCHEMA,
        complete=False,
        provenance={"model": {"dtype": "float32"}},
        methods={"goose": entry()},
        missing={"hf": "gone"},
        excerpts=(Excerpt("goose", "a", "set", "code", "prompt", shown, trees),),
        best=Searched(
            "b.json", "tokens_per_second", {"goose": PublishedAndBest("goose", "goose:budget=9")}
        ),
    )


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", written())
    back = load(tmp_path / "x.json")
    assert encode(back) == encode(written())
    assert back.best == written().best
    assert back.excerpts == written().excerpts
    whole, again = vars(written().methods["goose"]), vars(back.methods["goose"])
    assert {key for key in whole if whole[key] != again[key]} == {"rows"}, "parts are not written"


def test_unknown_figures_are_null() -> None:
    found = json.loads(json.dumps(encode(written()), allow_nan=False))["methods"]["goose"]
    assert found["speedup_vs_hf"] == {"median": None, "low": None, "high": None}
    assert found["mean_acceptance_length"] == {"value": None, "low": None, "high": None}
    assert found["peak_memory_mb"] is None
    assert found["rows"][1]["tpot"] is None
    assert found["near_ties"] == 1
    assert [each["gap"] for each in found["divergences"]] == [1e-7, 0.5]
    none = {"value": 0.0, "low": None, "high": None}
    assert found["acceptance_by_source"]["x"] == {"drafted": 2, "accepted": 0, "rate": none}
    assert found["acceptance_by_rank"][1] == {"depth": 1, "rank": 2, "offered": 2, "accepted": 2}


def test_differences_count_by_prompt_as_rounding_fault_or_neither() -> None:
    near = Divergence("a", 0, 0, 0, 0, 1, 2, 0.1, 0.2, True)
    fault = replace(near, near_tie=False)
    unknown = replace(near, near_tie=None)
    for found, wanted in (
        ([near, near], (2, 1, 0)),
        ([near, fault], (1, 0, 1)),
        ([near, unknown], (1, 0, 0)),
        ([near, replace(near, id="b"), replace(fault, id="c")], (2, 2, 1)),
    ):
        made = method_entry("x", [], Baselines(), found, {})
        assert (made.near_ties, made.rounding_prompts, made.fault_prompts) == wanted


def test_the_summary_is_a_part_of_the_document() -> None:
    short = json.loads(json.dumps(summary(written(), Path("out.json"))))
    assert (short["complete"], short["json"]) == (False, "out.json")
    assert short["missing"] == {"hf": "gone"}
    whole = encode(written())["methods"]["goose"]
    assert all(whole[key] == value for key, value in short["methods"]["goose"].items())
    assert "rows" not in short["methods"]["goose"]


def test_methods_are_sorted_by_speed_and_tasks_and_dtype_are_known() -> None:
    found = document()
    assert list(found.methods) == ["ar", "goose:budget=16", "pld", "hf"]
    assert [m.name for m in found.by_speed] == ["goose:budget=16", "pld", "ar", "hf"]
    assert (found.tasks, found.dtype) == (TASKS, "float32")


def test_methods_without_a_speed_come_last() -> None:
    methods = {"slow": method(metrics(None)), "ar": method(metrics(1.0))}
    assert [m.name for m in document(methods=methods).by_speed] == ["ar", "slow"]


@pytest.mark.parametrize("wrong", [None, [], "text", 3, {}, {"methods": {}}])
def test_what_is_no_document_is_refused(wrong: object) -> None:
    with pytest.raises(DraftwoodError, match="not a 'bench --json' file"):
        read(wrong)


@pytest.mark.parametrize("schema", [1, 3, "4", None])
def test_other_schemas_are_refused(schema: object) -> None:
    with pytest.raises(DraftwoodError, match=r"schema .* reads schema 4: run the benchmark again"):
        read(parsed(schema=schema))


def _change(path: str, *value: object) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("/"))
        for key in keys:
            found = found[key]
        if value:
            found[last] = value[0]
        else:
            del found[last]

    return change


ERROR = "methods/pld/reliability/all_steps/predicted"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_change("excerpts"), "^excerpts is missing; run the benchmark again$"),
        (_change("methods/pld/by_set/made/prompts"), r"^methods\.pld\.by_set\.made\.prompts is m"),
        (_change("methods", []), r"^methods: expected an object, found \[\]"),
        (_change("missing/hf-assistant", 1), r"missing\.hf-assistant: expected a string, found 1"),
        (_change("methods/pld/prompts", -1), "prompts: expected an integer from 0 up, found -1"),
        (_change("methods/pld/tokens", True), "tokens: expected an integer from 0 up, found true"),
        (_change("methods/pld/peak_memory_mb", "x"), 'a number or null, found "x"'),
        (_change("methods/pld/peak_memory_mb", math.nan), "a number or null, found NaN"),
        (_change("methods/pld/acceptance_by_depth", {}), "expected a list, found {}"),
        (_change("excerpts/0/steps/1/route", None), r"excerpts\[0\]\.steps\[1\]\.route: expected"),
        (_change(ERROR, None), r"reliability\.all_steps\.predicted: expected a number, found null"),
        (
            _change("methods/pld/reliability/late_steps"),
            r"methods\.pld\.reliability\.late_steps is",
        ),
        (_change("excerpts/0/prompt", ["x" * 99]), r'found \["x{58}…'),
    ],
)
def test_the_place_of_a_fault_is_named(change: Callable[[Any], None], complaint: str) -> None:
    made = parsed()
    change(made)
    with pytest.raises(DraftwoodError, match=complaint):
        read(made)


def test_a_file_is_named_with_its_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(DraftwoodError, match=r"cannot read .*x\.json: No such file"):
        load(path)
    path.write_text("{")
    with pytest.raises(DraftwoodError, match=r"x\.json is not JSON: "):
        load(path)
    path.write_text("[]")
    with pytest.raises(DraftwoodError, match=r"x\.json: not a 'bench --json' file"):
        load(path)


FIGURES = (Metrics, RunRow, Reliabilities, Reliability, SourceReliability, Bin)
WRITTEN = {f.name for kind in FIGURES for f in fields(kind) if f.metadata.get("written", True)}


@pytest.mark.parametrize("key", sorted(WRITTEN))
def test_every_figure_is_defined_in_the_documentation(key: str) -> None:
    assert f"`{key}`" in DOCUMENTATION.read_text(encoding="utf-8")
