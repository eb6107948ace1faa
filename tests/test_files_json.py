"""Typed JSON: a round trip keeps every value, and a refusal names the place and the fault."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from draftwood.engine.request import Completion
from draftwood.engine.stats import StepStats, Tally
from draftwood.errors import DraftwoodError
from draftwood.files import UNWRITTEN, Count, Range, decode, encode
from draftwood.protocols import StepTimes
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Inner:
    ratio: Annotated[float, Range(0, 1)]
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name == "":
            raise DraftwoodError("a name is empty")


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    pair: tuple[int, bool]
    many: tuple[Inner, ...]
    by_place: Mapping[tuple[int, int], float]
    by_name: Mapping[str, Inner]
    found: Counter[str]
    limit: float | None = None
    count: Count = 0
    values: list[int] = field(default_factory=list)
    best: Inner | None = None
    cache: tuple[int, ...] = field(default=(), metadata=UNWRITTEN)


OUTER = Outer(
    "b",
    (3, True),
    (Inner(0.1), Inner(1 / 3, "x")),
    {(1, 2): 0.5},
    {"a b": Inner(0.0)},
    Counter(z=2, a=1),
    best=Inner(1.0),
)


def back(kind: Any, value: object) -> Any:
    return decode(kind, json.loads(json.dumps(encode(value), allow_nan=False)))


def test_what_is_written_is_what_is_read() -> None:
    plain = encode(OUTER)
    assert plain["by_place"] == [[[1, 2], 0.5]]
    assert plain["by_name"] == {"a b": {"ratio": 0.0, "name": None}}
    assert "cache" not in plain
    found = back(Outer, OUTER)
    assert found == OUTER
    assert isinstance(found.found, Counter)
    assert found.found["nothing"] == 0
    assert list(found.found) == ["z", "a"]
    assert back(Outer, Outer("a", (0, False), (), {}, {}, Counter())).by_place == {}


def test_unknown_members_are_ignored_and_missing_ones_refused_even_with_a_default() -> None:
    plain = encode(OUTER)
    assert decode(Outer, plain | {"more": 1, "cache": [1]}) == OUTER
    del plain["count"]
    with pytest.raises(DraftwoodError, match=r"^count is missing$"):
        decode(Outer, plain)


def test_a_completion_keeps_its_counts_and_seconds() -> None:
    tally = Tally(steps=2, routes=Counter({"spine": 2}))
    tally.add(StepStats(TreeBuilder(1).build(), (), 1, StepTimes(draft=2.0, target=0.1), 1))
    tally.reached_by_depth[3] += 1
    made = Completion((1, 2), "é\n", "eos", tally, 3, 0.1 + 0.2, 1e-9)
    assert back(Completion, made) == made


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_unknown(value: float) -> None:
    assert encode({"a": [value, 1.5]}) == {"a": [None, 1.5]}
    with pytest.raises(DraftwoodError, match=r"x: expected a number, found (NaN|-?Infinity)"):
        decode(float, value, "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, r'^kind: expected "a" or "b", found "c"$'),
        ({"pair": [3]}, r"^pair: expected a list of 2 values, found \[3\]$"),
        ({"pair": [3, 1]}, r"^pair\[1\]: expected true or false, found 1$"),
        ({"pair": [3.0, True]}, r"^pair\[0\]: expected an integer, found 3\.0$"),
        ({"pair": [True, True]}, r"^pair\[0\]: expected an integer, found true$"),
        ({"many": [{"name": None}]}, r"^many\[0\]\.ratio is missing$"),
        (
            {"many": [{"ratio": 1.5}]},
            r"^many\[0\]\.ratio: expected a number from 0 to 1, ",
        ),
        ({"many": [{"ratio": 0, "name": ""}]}, r"^many\[0\]: a name is empty$"),
        ({"many": 5}, r"^many: expected a list, found 5$"),
        ({"values": 5}, r"^values: expected a list of integers, found 5$"),
        ({"by_place": {"a": 1}}, r"^by_place: expected a list, found {"),
        (
            {"by_place": [[[1], 2]]},
            r"^by_place\[0\]\[0\]: expected a list of 2 values",
        ),
        ({"by_name": []}, r"^by_name: expected an object, found \[\]$"),
        ({"by_name": {"a b": 1}}, r"^by_name\.a b: expected an object, found 1$"),
        ({"found": {"z": "1"}}, r'^found\.z: expected an integer or a number, found "1"$'),
        ({"limit": "1"}, r'^limit: expected a number or null, found "1"$'),
        ({"count": -1}, r"^count: expected an integer from 0 up, found -1$"),
        ({"best": {}}, r"^best\.ratio is missing$"),
        ({"best": "x" * 99}, r'^best: expected an object, found "x{59}…$'),
    ],
)
def test_a_refusal_names_the_place_and_the_fault(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        decode(Outer, encode(OUTER) | change)


def test_a_place_is_the_beginning_of_all_below() -> None:
    with pytest.raises(DraftwoodError, match=r"^the top level: expected an object, found \[\]$"):
        decode(Outer, [])
    with pytest.raises(DraftwoodError, match=r"^runs\[3\]\.tokens\[0\]: expected an integer"):
        decode(dict[str, tuple[int, ...]], {"tokens": [None]}, "runs[3]")
