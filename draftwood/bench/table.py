"""The table a person reads after a run.

Knows nothing beyond the document it shows.
"""

from collections.abc import Mapping
from typing import Any, cast

from rich import box
from rich.table import Table


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
        caption="speeds and times: medians over prompts; others pooled; below: 95 % intervals",
    )
    shown.add_column("method", overflow="fold")
    heads = ["tok/s", "vs ar", *(["vs hf"] if versus_hf else []), "τ", "accept", "TTFT ms"]
    for column in (*heads, "ms/tok", "overhead", "same", "loops"):
        shown.add_column(column, justify="right")
    for name, entry in methods.items():
        shown.add_row(
            name,
            _interval(entry["tokens_per_second"], "median", "{:.1f}"),
            _interval(entry["speedup_vs_ar"], "median", "{:.2f}"),
            *([_interval(entry["speedup_vs_hf"], "median", "{:.2f}")] if versus_hf else []),
            _interval(entry["mean_acceptance_length"], "value", "{:.2f}"),
            _number(entry["acceptance_rate"]["value"], "{:.0%}"),
            _number(entry["ttft_ms"]["median"], "{:.1f}"),
            _number(entry["tpot_ms"]["median"], "{:.2f}"),
            _number(entry["overhead_percent"], "{:.0f} %"),
            _identical(entry),
            str(entry["looping_prompts"]),
        )
    return shown


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _interval(value: Mapping[str, float | None], figure: str, form: str) -> str:
    middle = _number(value[figure], form)
    if value["low"] is None or value["high"] is None:
        return middle
    return f"{middle}\n{form.format(value['low'])}-{form.format(value['high'])}"


def _identical(entry: Mapping[str, Any]) -> str:
    if not entry["compared"]:
        return "-"
    ties = f"\n{entry['near_ties']} ties" if entry["near_ties"] else ""
    return f"{entry['identical']}/{entry['compared']}{ties}"
