"""The progress bar and the table of a benchmark."""

import io
from typing import cast

import pytest
from rich.console import Console

from draftwood.cli._bench_view import Bar, progress, table
from draftwood.engine.stats import Tally
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.document import SCHEMA, Document
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.measure import Item
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.runs import Job
from draftwood.lab.loops import Repeats
from draftwood.sampling.sampler import SamplingParams
from tests.factories.bench_rows import repeating, row


def shown(methods: dict[str, list[RunRow]], *, complete: bool = True) -> str:
    baselines = Baselines(methods["ar"], methods.get("hf", []))
    entries = {n: method_entry(n, rows, baselines, [], {}) for n, rows in methods.items()}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(Document(SCHEMA, complete, {}, entries, {}, ())))
    return captured.get()


def rows(seconds: float, **others: object) -> list[RunRow]:
    tally = cast(Tally, others.get("tally", Tally()))
    return [row(str(i), group=i, seconds=seconds, tally=tally) for i in range(6)]


def test_speeds_and_tau_have_their_intervals_below() -> None:
    text = shown({"ar": rows(1.0), "goose": rows(0.5, tally=Tally(steps=2, committed=5))})
    line, below = text.split("goose")[1].splitlines()[:2]
    assert line.split() == ["20.0", "2.00", "2.50", "-", "100.0", "44.44", "-", "-", "0/6"]
    assert below.split() == ["20.0-20.0", "2.00-2.00", "2.50-2.50", "0%"]
    assert "incomplete" not in text
    assert "incomplete" in shown({"ar": rows(1.0)}, complete=False)


def test_the_speed_up_over_hf_is_shown_if_hf_ran() -> None:
    assert "vs hf" not in shown({"ar": rows(1.0)})
    text = shown({"ar": rows(1.0), "hf": rows(3.0)})
    assert "vs hf" in text
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["ar"])
    assert line.split()[1:4] == ["10.0", "1.00", "3.00"]


def test_figures_taken_on_looping_texts_are_marked() -> None:
    assert "†" not in shown({"ar": rows(1.0)})
    looping = [repeating(each, Repeats(9, 10), Repeats(1, 10)) for each in rows(1.0)]
    text = shown({"ar": looping})
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["ar"])
    assert line.split()[1:] == ["10.0†", "1.00†", "-", "-", "100.0", "100.00†", "-", "-", "6/12"]
    assert "† 6 of 12 outputs loop" in " ".join(text.split())
    assert "here 50% of all" in " ".join(text.split())


JOB = Job("goose", 0, 0, 0, (Item(Prompt("s/1", "t", "s", ("x",)), SamplingParams()),))


def test_the_rest_is_estimated_from_what_this_process_ran() -> None:
    now = 0.0
    shown = progress(Console(file=io.StringIO()))
    shown.get_time = lambda: now
    counted = Bar(shown, ended=100, left=20)
    (task,) = shown.tasks
    assert (task.completed, task.total) == (100, 120)
    counted(JOB, False)
    assert task.description == "warm-up goose · s/1"
    now = 1000.0  # a slow warm-up, which is not among what is left
    for _ in range(6):
        counted(JOB, True)
        now += 90.0
    assert task.description == "goose · s/1"
    assert task.completed == 105
    # Fifteen are left, 90 seconds each; the 100 of the other process took no time here.
    assert task.time_remaining == pytest.approx(15 * 90.0)
