"""Options and output that ``replay`` and ``simulate`` share: costs, loads and the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table

from draftwood.cli._options import (
    PATH,
    F,
    console,
    figures_option,
    numbers,
    setting_values,
    stack,
    written_options,
)
from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.files import check_apart, check_writable, write_json
from draftwood.lab.replay.figures import BatchLoad, Figures, Speed, figures
from draftwood.lab.replay.pricing import assumed_costs, expected_costs, of_sequence

if TYPE_CHECKING:
    from draftwood.lab.replay.decoding import PromptRun
    from draftwood.lab.replay.substitute import ReplayMethod
    from draftwood.methods.recipe import Method


@dataclass(frozen=True)
class Output:
    """Figures to compute from replayed steps, and the file to write.

    Attributes:
        file: file of step costs, if any.
        gpu: GPU for which step costs are estimated, if any.
        shape: shape of the target there.
        draft_shape: shape of draft models there.
        loads: batch sizes and contexts for expected speeds.
        path: JSON file to write, if any.

    Raises:
        DraftwoodError: options contradict each other, one is missing, or the JSON file cannot be
            written.
    """

    file: Path | None
    gpu: str | None
    shape: str | None
    draft_shape: str | None
    loads: Sequence[BatchLoad]
    path: Path | None

    def __post_init__(self) -> None:
        if self.file is not None and (self.gpu or self.shape or self.draft_shape):
            raise DraftwoodError("--costs and --gpu are two sources of costs: give one of them")
        if bool(self.gpu) != bool(self.shape) or (self.draft_shape and not self.gpu):
            raise DraftwoodError("--gpu and --shape belong together: give both, or none")
        if self.path is not None:
            check_writable(self.path)

    def check(self, methods: Iterable[str], recording: Path | None = None) -> None:
        """Refuse to overwrite a file that is read.

        Args:
            methods: as they are spelled.
            recording: that is replayed, if any.

        Raises:
            DraftwoodError: the JSON file is the recording, a method's or that of step costs.
        """
        check_apart([self.path], [self.file, recording, *setting_values(methods)])

    def costs(self, methods: Iterable[ReplayMethod]) -> StepCosts | None:
        """Step costs with the methods' drafters that have a model; None if no costs are given.

        Raises:
            DraftwoodError: a file or a name cannot be used, or a drafter's costs are missing.
        """
        methods = list(methods)
        sources = {source for method in methods for source in method.recorded}
        if self.draft_shape and any(len({*m.recorded.values()}) > 1 for m in methods):
            raise DraftwoodError(
                "--draft-shape is of one draft model, and a method drafts with several: give the "
                "--costs of 'draftwood tune --draft A --head B'"
            )
        if self.file is not None:
            found = read_costs(self.file)
        elif self.gpu and self.shape:
            found = expected_costs(self.gpu, self.shape, self.draft_shape, sources)
        else:
            return None
        missing = sorted(sources - set(found.drafters))
        if missing:
            raise DraftwoodError(
                f"costs of drafters {', '.join(missing)} are not known: measure them with "
                "'draftwood tune --draft', or give --draft-shape with --gpu"
            )
        return found

    def figures(
        self,
        name: str,
        method: Method,
        costs: StepCosts | None,
        runs: Callable[[str, StepCosts], Sequence[PromptRun]],
        together: Callable[[str, StepCosts, int], Speed | None] | None = None,
    ) -> Figures:
        """Figures of a method at all loads.

        Args:
            name: the method's name, as shown.
            method: the method. If it weighs nodes by cost, its trees are planned for every load.
            costs: step costs; None if none are known.
            runs: decodes all prompts, with a title to show, at these step costs.
            together: decodes them in batches of a given size; its speed is None without steps. If
                this is None, the steps of single prompts are dealt into batches.

        Raises:
            DraftwoodError: the costs of a drafter are not known.
        """
        usual = runs(name, costs or assumed_costs())
        if costs is not None and together is not None:
            sizes = dict.fromkeys(load.batch for load in self.loads)
            speeds = [together(f"{name} in batches of {size}", costs, size) for size in sizes]
            return figures(name, usual, together=[speed for speed in speeds if speed])
        planned: dict[BatchLoad, Sequence[PromptRun]] = {}
        if costs is not None and method.policy.weighs_costs:
            for load in self.loads:
                at = of_sequence(costs, load.batch, load.context)
                title = f"{name} at batch {load.batch}, context {load.context}"
                planned[load] = runs(title, at)
        return figures(name, usual, self.loads, costs, planned)

    def write(self, found: Sequence[Figures], facts: Mapping[str, object]) -> None:
        """Write the figures and ``facts`` as JSON if a file was given, and print the table."""
        if self.path is not None:  # first: the table may have lost its reader
            write_json(self.path, {**facts, "methods": list(found)})
        console().print(table(found))


def output_options(function: F) -> F:
    """Options for costs, loads and the JSON file; the command gets an :class:`Output`."""

    @wraps(function)
    def with_output(
        *args: Any,
        costs_file: Path | None,
        gpu: str | None,
        shape: str | None,
        draft_shape: str | None,
        batch: str,
        context: str,
        output: Path | None,
        **rest: Any,
    ) -> Any:
        if costs_file is None and not gpu:
            given = written_options(click.get_current_context(), ["batch", "context"])
            if given:
                raise DraftwoodError(
                    f"{given[0]} has no use without step costs: give --costs or --gpu"
                )
        found = Output(costs_file, gpu, shape, draft_shape, loads_of(batch, context), output)
        return function(*args, output=found, **rest)

    decorate: Callable[[Any], F] = stack(
        click.option(
            "--costs",
            "costs_file",
            type=PATH,
            help="Step costs from 'draftwood tune --json'. Without costs, no speeds are estimated "
            "and auto assumes that a drafted node costs 1 % of a plain step.",
        ),
        click.option("--gpu", help="Estimate step costs for a GPU (h100); needs --shape."),
        click.option("--shape", help="With --gpu: shape of the target (8b)."),
        click.option(
            "--draft-shape",
            help="With --gpu: shape of draft models (0.5b); head: EAGLE-3 heads of the target.",
        ),
        click.option("--batch", default="1", show_default=True, help="Batch sizes, such as 1,4."),
        click.option(
            "--context", default="1000", show_default=True, help="Cached tokens per sequence."
        ),
        figures_option,
    )
    return decorate(with_output)


def loads_of(batch: str, context: str) -> list[BatchLoad]:
    """All pairs of batch sizes and contexts.

    Raises:
        DraftwoodError: the lists contain something else than numbers.
    """
    sizes, lengths = _numbers("--batch", batch, 1), _numbers("--context", context, 0)
    return [BatchLoad(b, c) for b in sizes for c in lengths]


def _numbers(flag: str, text: str, least: int) -> tuple[int, ...]:
    advice = f"write numbers of at least {least}, such as 4,16"
    found = numbers(flag, text, int, advice)
    if min(found) < least:
        raise DraftwoodError(f"{flag} {text!r}: {advice}")
    return found


def table(found: Sequence[Figures]) -> Table:
    """One row per method; a column per load if speeds are estimated."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("method", overflow="fold")
    loads = [f"tok/s ×\nb={s.load.batch} c={s.load.context}" for s in found[0].speeds]
    live = ["live"] if any(one.live_prompts for one in found) else []
    for column in ("τ", "accept", "nodes", "drafts", *loads, "steps/s", *live):
        shown.add_column(column, justify="right")
    for one in found:
        speeds = [f"{s.tokens_per_second:.0f} {s.speedup:.2f}" for s in one.speeds]
        shown.add_row(
            one.method,
            _number(one.mean_acceptance_length, "{:.2f}"),
            _number(one.acceptance_rate, "{:.0%}"),
            _number(one.drafted_per_step, "{:.1f}"),
            _number(one.draft_efficiency, "{:.2f}"),
            *(speeds or ["-"] * len(loads)),
            _number(one.steps_per_second, "{:.0f}"),
            *(_number(one.live_steps_per_second, "{:.0f}") for _ in live),
        )
    return shown


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)
