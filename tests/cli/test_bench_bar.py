"""The bar counts all jobs, and estimates from those it has seen."""

import io

import pytest
from rich.console import Console

from draftwood.cli import _bench_view
from draftwood.lab.bench.measure import Item
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.runs import Job
from draftwood.sampling.sampler import SamplingParams

JOB = Job("goose", 0, 0, 0, (Item(Prompt("s/1", "t", "s", ("x",)), SamplingParams()),))


def test_the_rest_is_estimated_from_what_this_process_ran() -> None:
    now = 0.0
    shown = _bench_view.progress(Console(file=io.StringIO()))
    shown.get_time = lambda: now
    counted = _bench_view.Bar(shown, ended=100, left=20)
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
