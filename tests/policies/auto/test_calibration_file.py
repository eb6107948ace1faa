"""Calibration files: what is written is read, and what cannot be read is refused in a sentence."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.methods.shipped_models import ASSETS
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.calibration_file import VERSION, load, save
from draftwood.policies.auto.features import SCHEME, SOURCES, Source, neural_source
from draftwood.protocols import Evidence, Feature
from tests.policies.auto.known_costs import BUCKETS

MINE = Source("mine", Evidence(ranked=(Feature("rank", (1,)),)))


def test_saved_counts_are_where_the_next_process_begins(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    known = Calibration({"greedy": {(5, 0, 0): (6.0, 2.0)}, "high": {(0, 9, 0): (7.0, 7.0)}}, 1e12)
    known.at(0.0).observe([(5, 0, 0), (5, 0, 0), (0, 7, 16)], [True, False, True])
    known.at(0.3).observe([(9, 10, 18)], [True])
    save(path, known)
    assert load(path).counts == {
        "greedy": {(5, 0, 0): (8.0, 3.0), (0, 7, 16): (1.0, 1.0)},
        "low": {(9, 10, 18): (1.0, 1.0)},
        "high": {(0, 9, 0): (7.0, 7.0)},  # a band that was not used is written as well
    }
    save(path, Calibration({"low": {}}))
    assert load(path).counts == {"low": {}}


def test_the_shipped_counts_are_written_as_they_were_read(tmp_path: Path) -> None:
    path = ASSETS / "embedded" / "calibration.json"
    save(tmp_path / "c.json", load(path).calibration(SOURCES))
    assert load(tmp_path / "c.json") == load(path)


def test_what_was_learnt_of_a_further_source(tmp_path: Path) -> None:
    path, sources = tmp_path / "c.json", (*SOURCES, MINE)
    known = Calibration({"greedy": {(5, 0, 0): (6.0, 2.0)}}, 1e12, sources)
    for _ in range(20):
        known.at(0.0).observe([(5, 0, 0, 2), (0, 0, 0, 3)], [False, True])
    save(path, known)
    again = load(path).calibration(sources)
    for codes in ((5, 0, 0, 2), (0, 0, 0, 3), (5, 0, 0, 3), (1, 0, 0, 3)):
        now, then = (of.at(0.0).acceptance.probability(codes) for of in (known, again))
        assert now == pytest.approx(then, abs=0.05)
    without = load(path).calibration(SOURCES).at(0.0).acceptance.probability((5, 0, 0))
    assert again.at(0.0).acceptance.probability((5, 0, 0, 2)) < without - 0.02
    # In another order beside a source that the file knows nothing of; and with other evidence.
    yours = Source("yours", Evidence(copied=(Feature("first"),)))
    other = load(path).calibration((*SOURCES, yours, MINE))
    assert other.at(0.0).acceptance.probability((5, 0, 0, 0, 2)) == pytest.approx(
        again.at(0.0).acceptance.probability((5, 0, 0, 2))
    )
    changed = Source("mine", Evidence(ranked=(Feature("rank", (2,)),)))
    fresh = load(path).calibration((*SOURCES, changed))
    assert not any(fresh.at(0.0).learnt()[0][1])


def file_of(
    low: object = None, version: int = VERSION, scheme: str = SCHEME, **more: object
) -> str:
    return json.dumps({"version": version, "scheme": scheme, "bands": {"low": low}, **more})


def band(buckets: list[Any], offered: list[Any], taken: list[Any]) -> str:
    return file_of({"buckets": buckets, "offered": offered, "taken": taken})


def further(offsets: list[float], feature: str = "rank") -> str:
    mine = {
        "name": "mine",
        "evidence": {"copied": [], "ranked": [{"name": feature, "edges": [1]}]},
        "offsets": offsets,
        "curvatures": [0.0] * 8,
    }
    return file_of({"buckets": [], "offered": [], "taken": []}, further={"low": [mine]})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\xff", "c.json is not JSON"),
        ("[]", f"not a calibration file of version {VERSION}: run 'draftwood calibrate' again"),
        (file_of(version=1), "not a calibration file of version"),
        (file_of(scheme="x"), "other buckets than .* run 'draftwood calibrate' again"),
        (json.dumps({"version": VERSION, "scheme": SCHEME}), "is not a calibration file: .*bands"),
        (file_of(), "is not a calibration file: bands.low: expected an object"),
        (file_of({"buckets": [1]}), "bands.low.offered is missing"),
        (band([BUCKETS], [1], [1]), f"there is no bucket {BUCKETS}"),
        (band([-1], [1], [1]), "there is no bucket -1"),
        (band([1], [1], [2]), "above what was offered"),
        (band([1], [2], [-1]), "a count that is negative"),
        (band([1], [math.nan], [0]), "a number, found NaN"),
        (band([1, 2], [1, 1, 1], [0, 0]), "is not a calibration file: "),
        (band([1, 1], [1, 1], [0, 0]), "bucket 1 is named twice"),
        (further([0.0] * 7), "8 offsets of mine are needed"),
        (further([math.nan] * 8), "a number, found NaN"),
        (further([-1000.0] + [0.0] * 7), "an offset of mine above 8"),
        (further([0.0] * 8).replace("[0.0, ", "[-1.0, "), "or a negative curvature"),
        (band([1, 2], [1e308, 1e308], [0, 0]), "too large to add up"),
        (further([0.0] * 8, "score2"), "features score2"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DraftwoodError, match=complaint):
        load(path)
    with pytest.raises(DraftwoodError, match=r"cannot read .*missing\.json"):
        load(tmp_path / "missing.json")


def test_what_was_learnt_of_a_further_neural_source(tmp_path: Path) -> None:
    path, sources = tmp_path / "c.json", (*SOURCES, MINE, neural_source("eagle3"))
    known = Calibration({"greedy": {(5, 0, 0): (6.0, 2.0)}}, 1e12, sources)
    for _ in range(20):
        known.at(0.0).observe([(5, 0, 0, 0, 9), (0, 0, 0, 3, 30)], [False, True])
    save(path, known)
    found = json.loads(path.read_text())
    assert [each["name"] for each in found["further"]["greedy"]] == ["mine"]
    assert [each["name"] for each in found["neural"]["greedy"]] == ["eagle3"]
    again = load(path).calibration(sources)
    for codes in ((5, 0, 0, 0, 9), (0, 0, 0, 3, 30), (5, 0, 0, 2, 30)):
        now, then = (of.at(0.0).acceptance.probability(codes) for of in (known, again))
        assert now == pytest.approx(then, abs=0.05)
    # A file without it is as good a beginning.
    del found["neural"]
    path.write_text(json.dumps(found))
    assert set(load(path).learnt["greedy"]) == {MINE}
