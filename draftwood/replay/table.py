"""The table of figures that a person reads. Knows nothing beyond them."""

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from draftwood.replay.figures import Figures
from draftwood.replay.speeds import Load

_FILE_WIDTH = 120
"""Columns where there is no terminal to ask."""


def show(found: Sequence[Figures], loads: Sequence[Load]) -> None:
    """Print the table to standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    console.print(table(found, loads))


def table(found: Sequence[Figures], loads: Sequence[Load]) -> Table:
    """One line per method; a column per load if speeds are expected."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("method", overflow="fold")
    for column in ("τ", "accept", "nodes", "drafts"):
        shown.add_column(column, justify="right")
    for load in loads:
        shown.add_column(f"tok/s ×\nb={load.batch} c={load.context}", justify="right")
    shown.add_column("steps/s", justify="right")
    live = any(one.live_prompts for one in found)
    if live:
        shown.add_column("live", justify="right")
    for one in found:
        cells = [one.method, _number(one.tau, "{:.2f}"), _number(one.acceptance_rate, "{:.0%}")]
        cells += [_number(one.nodes, "{:.1f}"), _number(one.draft_calls, "{:.2f}")]
        cells += [f"{s.tokens_per_second:.0f} {s.speedup:.2f}" for s in one.speeds]
        cells.append(_number(one.steps_per_second, "{:.0f}"))
        if live:
            cells.append(_number(one.live_steps_per_second, "{:.0f}"))
        shown.add_row(*cells)
    return shown


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)
