"""Flags of the commands that play methods without a model, and what they become."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from draftwood.cli._options import numbers
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.files import write_text
from draftwood.lab.replay.pricing import check_priced, expected_costs, read_costs

if TYPE_CHECKING:
    from draftwood.lab.replay.figures import Figures, Load

import math

from rich import box
from rich.console import Console
from rich.table import Table

from draftwood.lab.replay.figures import Figures, Load

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Pricing:
    """Where costs of a step come from: a file, a GPU and shapes, or nowhere.

    Raises:
        DraftwoodError: flags that contradict or need one another.
    """

    file: Path | None
    gpu: str | None
    shape: str | None
    draft_shape: str | None

    def __post_init__(self) -> None:
        if self.file is not None and (self.gpu or self.shape or self.draft_shape):
            raise DraftwoodError("--costs and --gpu are two sources of costs: give one of them")
        if bool(self.gpu) != bool(self.shape) or (self.draft_shape and not self.gpu):
            raise DraftwoodError("--gpu and --shape belong together: give both, or none")

    def costs(self, sources: Iterable[str]) -> StepCosts | None:
        """Costs of a step with these drafters that have a model; None if none are given.

        Raises:
            DraftwoodError: a file or a name cannot be used, or the costs of a drafter are missing.
        """
        if self.file is not None:
            found = read_costs(self.file)
        elif self.gpu and self.shape:
            found = expected_costs(self.gpu, self.shape, self.draft_shape, sources)
        else:
            return None
        check_priced(found, sources)
        return found


def pricing_options(function: F) -> F:
    """``--costs``, ``--gpu``, ``--shape``, ``--draft-shape``, ``--batch``, ``--context``."""
    options = [
        click.option(
            "--costs",
            "costs_file",
            type=click.Path(path_type=Path),
            help="Costs of a step: what 'draftwood tune --json' wrote. Without costs no speeds are "
            "expected, and auto takes a drafted node for 1 % of a plain step.",
        ),
        click.option("--gpu", help="Estimate the costs for a GPU, such as h100; needs --shape."),
        click.option("--shape", help="With --gpu: shape of the target, such as 8b."),
        click.option("--draft-shape", help="With --gpu: shape of draft models, such as 0.5b."),
        click.option(
            "--batch", default="1", show_default=True, help="Sequences at once, e.g. 1,4."
        ),
        click.option("--context", default="1000", show_default=True, help="Cached tokens of each."),
    ]
    return reduce(lambda f, option: option(f), reversed(options), function)


def loads_of(batch: str, context: str) -> list[Load]:
    """All pairs of batches and contexts.

    Raises:
        DraftwoodError: they are no numbers.
    """
    sizes, lengths = _numbers("--batch", batch, 1), _numbers("--context", context, 0)
    from draftwood.lab.replay.figures import Load

    return [Load(b, c) for b in sizes for c in lengths]


def write_figures(path: Path, found: Sequence[Figures], facts: dict[str, object]) -> None:
    """Write figures as JSON, with what they belong to."""
    content = {**facts, "methods": [one.to_json() for one in found]}
    write_text(path, json.dumps(content, indent=1) + "\n")


def _numbers(flag: str, text: str, least: int) -> list[int]:
    advice = f"write numbers of at least {least}, such as 4,16"
    found = numbers(flag, text, int, advice)
    if min(found) < least:
        raise DraftwoodError(f"{flag} {text!r}: {advice}")
    return list(found)


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
