"""The file from which a killed run is resumed: its content and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.journal import Journal, beside
from draftwood.lab.bench.measure import Item
from draftwood.lab.bench.predictions import predictions_of
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import Job
from draftwood.sampling.params import SamplingParams
from tests.factories.bench_rows import predicting, random_steps, run, turn

FACTS: dict[str, Any] = {"settings": {"limit": 3, "methods": ("ar",)}, "git": None}
PART = {"date": "2026-01-01T00:00:00+00:00", "load_average": [0.5, 0.25, 0.0]}
LATER = {"date": "2026-01-02T00:00:00+00:00", "load_average": None}


def made(number: int, method: str = "ar") -> Run:
    steps = random_steps(20, number)
    tally = Tally()
    for step in steps:
        tally.add(step)
    predicted = [predicting(2.5, number, ("x", 0.3, True), ("y", 1.0, False), number=201)]
    first = turn(
        (number, 2, 3),
        tally=tally,
        acceptance=acceptance_of(steps),
        forecasts=predictions_of(predicted),
    )
    name = f"a/{number}"
    return run(first, turn((4,)), id=name, method=method, run_seed=7, peak_memory_mb=0.5)


def add(journal: Journal, *runs: Run, part: dict[str, Any] = PART) -> None:
    """Append one job with these runs."""
    one = runs[0]
    item = Item(one.prompt, SamplingParams(seed=one.seed))
    job = Job(one.method, one.run_seed, one.repeat, one.group, (item,))
    journal.add(job, runs, FACTS, part)


def same(left: Run, right: Run) -> bool:
    return repr(vars(left)) == repr(vars(right))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with two jobs."""
    journal = Journal(tmp_path / "j")
    add(journal, made(1))
    add(journal, made(2, "goose"))
    return tmp_path / "j"


def test_it_lies_beside_the_document() -> None:
    assert beside(Path("out/x.json")) == Path("out/x.journal.jsonl")
    assert beside(Path("x")) == Path("x.journal.jsonl")


def test_runs_come_back_as_they_were(path: Path) -> None:
    back = Journal(path, resume=True)
    back.check(FACTS)
    back.check({"git": None})  # some facts are known before the others
    assert same(back.runs[0], made(1))
    assert same(back.runs[1], made(2, "goose"))
    assert not same(*back.runs)
    assert back.done == {("ar", 7, 0, 0), ("goose", 7, 0, 0)}
    assert back.parts == [PART]


def test_a_group_is_one_line(tmp_path: Path) -> None:
    add(Journal(tmp_path / "j"), made(1), made(2))
    head, line = map(json.loads, (tmp_path / "j").read_text().splitlines())
    assert head["facts"]["settings"]["limit"] == 3
    assert len(line["runs"]) == 2
    assert len(Journal(tmp_path / "j", resume=True).runs) == 2


def test_there_is_no_file_before_a_job_has_finished(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    assert not path.exists()
    journal.remove()
    add(journal, made(1))
    assert path.exists()
    journal.remove()
    assert not path.exists()


@pytest.mark.parametrize("torn", [b"{", b'{"job": ["ar", 7, 0', b"\xff\xfe\0\0", b'{"part": {}}'])
def test_a_torn_last_line_is_dropped(path: Path, torn: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    back = Journal(path, resume=True)
    assert len(back.done) == 2
    add(back, made(3, "pld"), part=LATER)
    assert path.read_bytes().startswith(whole)
    again = Journal(path, resume=True)
    assert [one.method for one in again.runs] == ["ar", "goose", "pld"]
    assert again.parts == [PART, LATER]


def test_the_first_line_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"deci')
    back = Journal(path, resume=True)
    assert (back.done, back.parts) == (set(), [])
    add(back, made(1))
    Journal(path, resume=True).check(FACTS)


def test_without_a_file_it_simply_starts(tmp_path: Path) -> None:
    for path in (tmp_path / "j", None):
        journal = Journal(path, resume=True)
        journal.check({"anything": 1})
        assert journal.runs == []
    add(journal, made(1))
    journal.remove()
    assert not list(tmp_path.iterdir())


def test_a_run_that_did_not_end_is_not_written_over(path: Path) -> None:
    with pytest.raises(DraftwoodError, match="add --resume to go on with it, or delete the file"):
        Journal(path)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"settings": {"limit": 4, "methods": ["ar"]}}, "settings.limit was 3 and is 4"),
        ({"settings": {"methods": ["ar"]}}, "settings.limit was 3 and is null"),
        ({"settings": {**FACTS["settings"], "new": "x"}}, 'settings.new was null and is "x"'),
        ({"git": {"commit": "abc"}}, 'git was null and is {"commit": "abc"}'),
        (
            {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
            r"a was null and is 1; b was null and is 2; c was null and is 3 \(and 2 more\)",
        ),
    ],
)
def test_another_run_is_refused_and_the_difference_named(
    path: Path, facts: dict[str, Any], said: str
) -> None:
    with pytest.raises(DraftwoodError, match=said):
        Journal(path, resume=True).check(facts)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "Expecting value"),
        (b"{}\n", "line 1.journal is missing"),
        (b'{"decides": {}}\n', "line 1.journal is missing"),
        (b'{"journal": 1, "facts": {}}\n', "it has version 1, not 2"),
        (b'{"journal": 2, "facts": {}}\n{"job": [["x"]]}\n', "line 2.job: expected a list of 4"),
        (b"\xff\n", "invalid start byte"),
    ],
)
def test_a_file_that_is_no_journal_is_refused(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(DraftwoodError, match=rf"is damaged or no journal of this .*{said}"):
        Journal(path, resume=True)


def test_a_place_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="cannot read"):
        Journal(tmp_path, resume=True)
