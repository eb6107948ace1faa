"""The progress bar of a benchmark and the tables that it prints at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from draftwood.lab.bench.loop_marks import marked
from draftwood.lab.bench.quiet import warning
from draftwood.lab.bench.verdicts import differences

if TYPE_CHECKING:
    from draftwood.lab.bench.document import Document, MethodResult, Searched
    from draftwood.lab.bench.figures import Metrics
    from draftwood.lab.bench.intervals import Estimate
    from draftwood.lab.bench.runs import Job

_PERIOD = 3600.0
"""Seconds over which the speed is estimated: methods differ, and a job may take minutes."""


def progress(console: Console) -> Progress:
    """A progress bar that disappears at its end.

    It is drawn between jobs only: a thread that redraws would disturb the measurement.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        speed_estimate_period=_PERIOD,
    )


class Bar:
    """Progress of a run's jobs.

    Args:
        progress: where it is drawn.
        ended: jobs finished by an earlier process; the speed is estimated without them.
        left: jobs of this process.
    """

    def __init__(self, progress: Progress, ended: int, left: int) -> None:
        self._progress = progress
        self._ended = ended
        self._task = progress.add_task("warm-up", total=ended + left, completed=ended)

    def __call__(self, job: Job, timed: bool) -> None:
        """Show the job that starts, timed or warm-up."""
        label = job.method if timed else f"warm-up {job.method}"
        self._progress.update(
            self._task,
            description=f"{label} · {job.items[0].prompt.id}",
            completed=self._ended,
            refresh=True,
        )
        self._ended += timed


def show(console: Console, document: Document) -> None:
    """Print the tables of a run, its differences from plain decoding, and its warning."""
    console.print(table(document))
    if document.best is not None:
        console.print(best_table(document, document.best))
    for line in differences(document):
        console.print(line, markup=False)
    disturbed = warning(document.provenance)
    if disturbed is not None:
        console.print(disturbed, style="yellow", markup=False)


def table(document: Document) -> Table:
    """One row per method; speeds and τ with 95 % intervals.

    Speed-up over transformers' ``generate`` is a column if the run has this peer.
    """
    methods = document.methods
    versus_hf = any(m.speedup_vs_hf.median is not None for m in methods.values())
    shown = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=None if document.complete else "incomplete",
        caption=_caption(document),
    )
    shown.add_column("method", overflow="fold")
    heads = ["tok/s", "vs ar", *(["vs hf"] if versus_hf else []), "τ", "accept", "TTFT ms"]
    for column in (*heads, "ms/tok", "overhead", "same", "loops"):
        shown.add_column(column, justify="right")
    for name, m in methods.items():
        speeds = [(m.tokens_per_second, "{:.1f}"), (m.speedup_vs_ar, "{:.2f}")]
        speeds += [(m.speedup_vs_hf, "{:.2f}")] if versus_hf else []
        shown.add_row(
            name,
            *(_interval(figure, form, m.looping_texts) for figure, form in speeds),
            _interval(m.mean_acceptance_length, "{:.2f}", m.looping_texts),
            marked(_number(m.acceptance_rate.value, "{:.0%}"), m.looping_texts),
            _number(m.ttft_ms.median, "{:.1f}"),
            marked(_number(m.tpot_ms.median, "{:.2f}"), m.looping_texts),
            _number(m.overhead_percent, "{:.0f} %"),
            _identical(m),
            f"{m.looping_texts}/{m.texts}\n{_number(m.repeated_8grams.value, '{:.0%}')}",
        )
    return shown


def best_table(document: Document, best: Searched) -> Table:
    """One row per method: tokens per second, speed-up and τ, as published and at its best."""
    note = f"tok/s, vs ar, τ; settings chosen by {best.by} on other prompts"
    if best.disturbed:
        note += f"; the search's times are not reliable: {best.disturbed}"
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=note)
    for head in ("method", "as published", "best setting", ""):
        shown.add_column(head, overflow="fold")
    for name, pair in best.methods.items():
        both = [document.methods.get(text) for text in (pair.published, pair.best)]
        if all(both):
            shown.add_row(name, *(_three(m) for m in both if m is not None), pair.best)
    return shown


def _three(metrics: Metrics) -> str:
    figures = [
        _number(metrics.tokens_per_second.median, "{:.1f}"),
        _number(metrics.speedup_vs_ar.median, "{:.2f}"),
        _number(metrics.mean_acceptance_length.value, "{:.2f}"),
    ]
    return "  ".join(marked(figure, metrics.looping_texts) for figure in figures)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _interval(value: Estimate, form: str, looping_texts: int) -> str:
    middle = marked(_number(value.middle, form), looping_texts)
    if value.low is None or value.high is None:
        return middle
    return f"{middle}\n{form.format(value.low)}-{form.format(value.high)}"


def _caption(document: Document) -> str:
    text = "speeds and times: medians over prompts; others pooled; below: 95 % intervals,\n"
    text += "and below loops the share of repeated 8-grams"
    return f"{text}\n{document.loops}" if document.loops else text


def _identical(method: MethodResult) -> str:
    if not method.compared:
        return "-"
    rounding, faults = method.rounding_prompts, method.fault_prompts
    notes = f"\n{rounding} rounded" if rounding else ""
    notes += f"\n{faults} FAULT" if faults else ""
    return f"{method.identical}/{method.compared}{notes}"
