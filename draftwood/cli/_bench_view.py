"""The progress bar of a benchmark and the tables that it prints at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

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

from draftwood.lab.bench.loop_marks import marked, note

if TYPE_CHECKING:
    from draftwood.lab.bench.runs import Job

_PERIOD = 3600.0
"""Seconds that the estimate looks back: methods differ in speed, and a job may take minutes."""


def progress(console: Console) -> Progress:
    """An empty bar; it is gone when it ends.

    It is drawn between jobs only: a thread that redraws would take time from what is measured.
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
    """Told each job before it begins.

    Args:
        shown: where it is drawn.
        ended: jobs that another process has run; they count as done, but not for the speed from
            which the rest is estimated.
        left: jobs to come.
    """

    def __init__(self, shown: Progress, ended: int, left: int) -> None:
        self._shown = shown
        self._ended = ended
        self._task = shown.add_task("warm-up", total=ended + left, completed=ended)

    def __call__(self, job: Job, timed: bool) -> None:
        """A job begins, timed or to warm up."""
        what = job.method if timed else f"warm-up {job.method}"
        self._shown.update(
            self._task,
            description=f"{what} · {job.items[0].prompt.id}",
            completed=self._ended,
            refresh=True,
        )
        self._ended += timed


_VERSUS_HF = "speedup_vs_hf"
_FIGURES = (
    ("tokens_per_second", "median", "{:.1f}"),
    ("speedup_vs_ar", "median", "{:.2f}"),
    (_VERSUS_HF, "median", "{:.2f}"),
    ("mean_acceptance_length", "value", "{:.2f}"),
)
"""Figures with an interval: the metric, its member and how it is written."""


def table(document: Mapping[str, object]) -> Table:
    """One line per method; speeds and τ with their 95 % intervals.

    The speed-up over transformers' plain ``generate`` has a column if the run has that peer.
    """
    methods = cast(Mapping[str, Mapping[str, Any]], document["methods"])
    versus_hf = any(entry["speedup_vs_hf"]["median"] is not None for entry in methods.values())
    shown = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=None if document["complete"] else "incomplete",
        caption=_caption(methods),
    )
    shown.add_column("method", overflow="fold")
    heads = ["tok/s", "vs ar", *(["vs hf"] if versus_hf else []), "τ", "accept", "TTFT ms"]
    for column in (*heads, "ms/tok", "overhead", "same", "loops"):
        shown.add_column(column, justify="right")
    for name, entry in methods.items():
        shown.add_row(
            name,
            *(_interval(entry, *each) for each in _FIGURES if versus_hf or each[0] != _VERSUS_HF),
            marked(_number(entry["acceptance_rate"]["value"], "{:.0%}"), entry["looping_texts"]),
            _number(entry["ttft_ms"]["median"], "{:.1f}"),
            marked(_number(entry["tpot_ms"]["median"], "{:.2f}"), entry["looping_texts"]),
            _number(entry["overhead_percent"], "{:.0f} %"),
            _identical(entry),
            _loops(entry),
        )
    return shown


def best_table(document: Mapping[str, object]) -> Table:
    """Each method as published and at its best setting: tokens a second, over ar, and τ."""
    methods = cast(Mapping[str, Mapping[str, Any]], document["methods"])
    best = cast(Mapping[str, Any], document["best"])
    note = f"tok/s, over ar, τ; settings found by {best['by']} on other prompts"
    if disturbed := best.get("disturbed"):
        note += f"; the search's times are not reliable: {disturbed}"
    shown = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=note,
    )
    for head in ("method", "as published", "best setting", ""):
        shown.add_column(head, overflow="fold")
    for name, pair in best["methods"].items():
        if pair["published"] in methods and pair["best"] in methods:
            both = (_three(methods[pair[key]]) for key in ("published", "best"))
            shown.add_row(name, *both, pair["best"])
    return shown


def _three(entry: Mapping[str, Any]) -> str:
    figures = (_FIGURES[0], _FIGURES[1], _FIGURES[3])
    return "  ".join(
        marked(_number(entry[key][figure], form), entry["looping_texts"])
        for key, figure, form in figures
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _interval(entry: Mapping[str, Any], key: str, figure: str, form: str) -> str:
    value = entry[key]
    middle = marked(_number(value[figure], form), entry["looping_texts"])
    if value["low"] is None or value["high"] is None:
        return middle
    return f"{middle}\n{form.format(value['low'])}-{form.format(value['high'])}"


def _loops(entry: Mapping[str, Any]) -> str:
    share = _number(entry["repeated_8grams"]["value"], "{:.0%}")
    return f"{entry['looping_texts']}/{entry['texts']}\n{share}"


def _caption(methods: Mapping[str, Mapping[str, Any]]) -> str:
    said = "speeds and times: medians over prompts; others pooled; below: 95 % intervals,\n"
    said += "and below loops the share of repeated 8-grams"
    worst = max(methods.values(), key=lambda entry: int(entry["looping_texts"]), default=None)
    if worst is None or not worst["looping_texts"]:
        return said
    share = worst["repeated_8grams"]["value"]
    return f"{said}\n{note(worst['texts'], worst['looping_texts'], share)}"


def _identical(entry: Mapping[str, Any]) -> str:
    if not entry["compared"]:
        return "-"
    rounding, faults = entry["rounding_prompts"], entry["fault_prompts"]
    why = f"\n{rounding} rounded" if rounding else ""
    why += f"\n{faults} FAULT" if faults else ""
    return f"{entry['identical']}/{entry['compared']}{why}"
