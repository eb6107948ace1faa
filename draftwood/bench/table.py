"""The table a person reads after a run.

Knows nothing beyond the document it shows.
"""

from collections.abc import Mapping
from typing import Any, cast

from rich import box
from rich.table import Table

COLUMNS = (
    "method",
    "tok/s",
    "speed-up",
    "τ",
    "accept",
    "TTFT ms",
    "ms/tok",
    "overhead",
    "same",
    "loops",
)


def table(document: Mapping[str, object]) -> Table:
    """One line per method; speeds with their 95 % intervals."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=None if document["complete"] else "incomplete",
        caption="medians over prompts, below them their 95 % intervals; others pooled",
    )
    shown.add_column(COLUMNS[0], overflow="fold")
    for column in COLUMNS[1:]:
        shown.add_column(column, justify="right")
    for name, entry in cast(Mapping[str, Mapping[str, Any]], document["methods"]).items():
        shown.add_row(
            name,
            _interval(entry["tokens_per_second"], "{:.1f}"),
            _interval(entry["speedup_vs_ar"], "{:.2f}"),
            _number(entry["mean_acceptance_length"], "{:.2f}"),
            _number(entry["acceptance_rate"], "{:.0%}"),
            _number(entry["ttft_ms"], "{:.1f}"),
            _number(entry["tpot_ms"], "{:.2f}"),
            _number(entry["overhead_percent"], "{:.0f} %"),
            _identical(entry),
            str(entry["looping_prompts"]),
        )
    return shown


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _interval(value: Mapping[str, float | None], form: str) -> str:
    middle = _number(value["median"], form)
    if value["low"] is None or value["high"] is None:
        return middle
    return f"{middle}\n{form.format(value['low'])}-{form.format(value['high'])}"


def _identical(entry: Mapping[str, Any]) -> str:
    if not entry["compared"]:
        return "-"
    ties = f"\n{entry['near_ties']} ties" if entry["near_ties"] else ""
    return f"{entry['identical']}/{entry['compared']}{ties}"
