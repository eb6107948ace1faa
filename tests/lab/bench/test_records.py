"""Records survive JSON exactly; what is none is refused."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from draftwood.engine.request import Completion
from draftwood.engine.stats import StepStats, Tally
from draftwood.lab.bench.records import decode, encode
from draftwood.protocols import StepTimes
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Inner:
    ratio: float
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    pair: tuple[int, bool]
    many: tuple[Inner, ...]
    by_place: Mapping[tuple[int, int], float]
    found: Counter[str]


OUTER = Outer("b", (3, True), (Inner(0.1), Inner(1 / 3, "x")), {(1, 2): 0.5}, Counter(z=2, a=1))


def test_what_is_written_is_what_is_read() -> None:
    plain = json.loads(json.dumps(encode(OUTER)))
    assert plain["by_place"] == [[[1, 2], 0.5]]
    back = decode(Outer, plain)
    assert back == OUTER
    assert isinstance(back.found, Counter)
    assert back.found["nothing"] == 0
    assert list(back.found) == ["z", "a"]


def test_a_completion_keeps_its_counts_and_seconds() -> None:
    tally = Tally(steps=2, routes=Counter({"spine": 2}))
    tally.add(StepStats(TreeBuilder(1).build(), (), 1, StepTimes(draft=2.0, target=0.1), 1))
    tally.reached_by_depth[3] += 1
    made = Completion((1, 2), "é\n", "eos", tally, 3, 0.1 + 0.2, math.inf)
    assert decode(Completion, json.loads(json.dumps(encode(made)))) == made


def test_an_unknown_number_stays_one() -> None:
    assert math.isnan(decode(Inner, json.loads(json.dumps(encode(Inner(math.nan))))).ratio)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "c"}, ValueError),
        ({"pair": [3]}, ValueError),
        ({"pair": [3, 1]}, TypeError),
        ({"pair": ["3", True]}, TypeError),
        ({"many": [{"name": None}]}, KeyError),
        ({"many": 5}, TypeError),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(Outer, encode(OUTER) | change)
