"""The file that a killed run goes on from: what is in it, and what it refuses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.bench import journal
from draftwood.lab.bench.acceptance import acceptance_of
from draftwood.lab.bench.forecast import forecasts_of
from draftwood.lab.bench.journal import Journal
from draftwood.lab.bench.measure import Item
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import Job
from draftwood.sampling.sampler import SamplingParams
from tests.factories.bench_rows import random_steps, run, told, turn

FACTS = {"settings": {"limit": 3, "methods": ("ar",)}, "git": None}
PART = {"date": "2026-01-01T00:00:00+00:00", "load_average": [0.5, 0.25, 0.0]}
LATER = {"date": "2026-01-02T00:00:00+00:00", "load_average": None}


def made(number: int, method: str = "ar") -> Run:
    steps = random_steps(20, number)
    tally = Tally()
    for step in steps:
        tally.add(step)
    foretold = [told(2.5, number, ("x", 0.3, True), ("y", 1.0, False), number=201)]
    answers = [
        turn(
            (number, 2, 3),
            tally=tally,
            acceptance=acceptance_of(steps),
            forecasts=forecasts_of(foretold),
        ),
        turn((4,)),
    ]
    return run(*answers, id=f"a/{number}", method=method, run_seed=7, peak_memory_mb=0.5)


def job(one: Run) -> Job:
    item = Item(one.prompt, SamplingParams(seed=one.seed))
    return Job(one.method, one.run_seed, one.repeat, one.group, (item,))


def prompts(runs: Sequence[Run]) -> list[Prompt]:
    return [one.prompt for one in runs]


def written(path: Path, *runs: Run) -> Journal:
    kept = journal.begun(path)
    kept.begin(FACTS, PART)
    for one in runs:
        kept.add(job(one), [one])
    return kept


def same(left: Run, right: Run) -> bool:
    return {k: repr(v) for k, v in vars(left).items()} == {
        k: repr(v) for k, v in vars(right).items()
    }


def test_it_lies_beside_the_document() -> None:
    assert journal.beside(Path("out/x.json")) == Path("out/x.journal.jsonl")
    assert journal.beside(Path("x")) == Path("x.journal.jsonl")


def test_runs_come_back_as_they_were(tmp_path: Path) -> None:
    path, runs = tmp_path / "j", [made(1), made(2, "goose")]
    written(path, *runs)
    back = journal.continued(path)
    back.check(FACTS)
    found = back.runs(prompts(runs))
    assert [same(a, b) for a, b in zip(found, runs, strict=True)] == [True, True]
    assert back.done == {("ar", 7, 0, 0), ("goose", 7, 0, 0)}
    assert not same(found[0], found[1])


def test_a_group_is_one_line(tmp_path: Path) -> None:
    path, pair = tmp_path / "j", [made(1), made(2)]
    kept = journal.begun(path)
    kept.begin(FACTS, PART)
    kept.add(job(pair[0]), pair)
    lines = path.read_text().splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [["decides"], ["part"], ["job", "runs"]]
    assert len(journal.continued(path).runs(prompts(pair))) == 2


def test_there_is_no_file_before_a_job_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "j"
    kept = written(path)
    assert not path.exists()
    kept.remove()  # nothing to do
    kept.add(job(made(1)), [made(1)])
    assert path.exists()
    kept.remove()
    assert not path.exists()


@pytest.mark.parametrize("torn", [b"{", b'{"job": ["ar", 7, 0', b"\xff\xfe\0\0", b'{"part": {}}'])
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path, torn: bytes) -> None:
    path, runs = tmp_path / "j", [made(1), made(2, "goose")]
    written(path, runs[0])
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    back = journal.continued(path)
    assert back.done == {("ar", 7, 0, 0)}
    back.begin(FACTS, LATER)
    assert path.read_bytes() == whole + torn  # nothing has ended yet
    back.add(job(runs[1]), [runs[1]])
    assert path.read_bytes().startswith(whole)
    again = journal.continued(path)
    assert [one.method for one in again.runs(prompts(runs))] == ["ar", "goose"]
    assert again.parts == [PART, LATER]


def test_the_first_line_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"deci')
    back = journal.continued(path)
    assert (back.done, back.parts) == (set(), [])
    back.begin(FACTS, PART)
    back.add(job(made(1)), [made(1)])
    journal.continued(path).check(FACTS)


def test_without_a_file_it_simply_starts(tmp_path: Path) -> None:
    kept = journal.continued(tmp_path / "j")
    kept.check({"anything": 1})
    assert kept.runs([]) == []


def test_a_run_that_did_not_end_is_not_written_over(tmp_path: Path) -> None:
    written(tmp_path / "j", made(1))
    with pytest.raises(DraftwoodError, match="add --resume to go on with it, or delete the file"):
        journal.begun(tmp_path / "j")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"settings": {"limit": 4, "methods": ["ar"]}}, "settings.limit was 3 and is 4"),
        ({"settings": {"methods": ["ar"]}}, "settings.limit was 3 and is null"),
        ({"settings": {**FACTS["settings"], "new": "x"}}, 'settings.new was null and is "x"'),  # type: ignore[dict-item]
        ({"git": {"commit": "abc"}}, 'git was null and is {"commit": "abc"}'),
        (
            {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
            r"a was null and is 1; b was null and is 2; c was null and is 3 \(and 2 more\)",
        ),
    ],
)
def test_another_run_is_refused_and_the_difference_named(
    tmp_path: Path, facts: dict[str, Any], said: str
) -> None:
    written(tmp_path / "j", made(1))
    back = journal.continued(tmp_path / "j")
    with pytest.raises(DraftwoodError, match=said):
        back.check(facts)


def test_some_of_the_facts_may_be_checked_before_the_others(tmp_path: Path) -> None:
    written(tmp_path / "j", made(1))
    journal.continued(tmp_path / "j").check({"git": None})


@pytest.mark.parametrize(
    "content", [b"hello\n", b"{}\n", b"[1]\n", b'{"decides": {}}\n{"job": [["x"]]}\n', b"\xff\n"]
)
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(DraftwoodError, match="is damaged or no journal"):
        journal.continued(tmp_path / "j")


def test_a_run_of_an_unknown_prompt_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "j", made(1))
    with pytest.raises(DraftwoodError, match=r"is damaged or no journal \(KeyError: 'a/1'\)"):
        journal.continued(tmp_path / "j").runs([])


def test_a_place_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="cannot read"):
        journal.continued(tmp_path)
