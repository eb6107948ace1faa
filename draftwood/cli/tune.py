"""``draftwood tune``: measures step costs on this machine, prints and saves them.

:mod:`draftwood.costs.measure` times forwards of the target and the drafter. Time outside
forwards is measured on steps of plain decoding and of GOOSE. Steps of other methods then check the
prediction. docs/costs.md explains the figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from draftwood.cli import _tune_tables
from draftwood.cli._options import (
    PATH,
    ModelOptions,
    console,
    draft_option,
    figures_option,
    head_option,
    model_options,
    numbers,
)
from draftwood.cli._sections import Command
from draftwood.cli._tune_tables import target_rows
from draftwood.costs import cache, store
from draftwood.costs.busy import Others, warn_if_busy, watched
from draftwood.costs.curve import StepCosts
from draftwood.costs.fit import HostSample, Sample, fit, fit_host, fit_prompts
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, write_json
from draftwood.lab.free_memory import free_memory
from draftwood.lab.request_memory import RequestMemory
from draftwood.methods import method
from draftwood.protocols import Drafter, DrafterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from draftwood.cli._timed_steps import Check
    from draftwood.runner.runner import Runner

_CONTEXTS = (128, 1024)
_SPREAD = 1.25
"""Largest acceptable quotient of two methods' ratios of predicted to measured steps."""
_TEXT = "def add(self, a, b):\n    return a + b\n\n"
_FITTED = ("ar", "goose:bypass=off")
_HELD_OUT = ("goose:budget=8:bypass=off", "goose:budget=24:bypass=off")


_EXAMPLES = """\b
Examples:
  draftwood tune --model PATH_OR_HUB_ID
  draftwood tune --model BIG --draft SMALL --batch 1,4 --json costs.json
"""


def _above_0(_ctx: click.Context, _param: click.Parameter, seconds: float) -> float:
    if not 0.0 < seconds < math.inf:
        raise DraftwoodError(f"--seconds is {seconds:g}: give a number above 0")
    return seconds


@click.command(cls=Command, epilog=_EXAMPLES)
@draft_option
@head_option
@click.option("--batch", default="1", show_default=True, help="Batch sizes, such as 1,4.")
@click.option(
    "--context",
    help="Cached tokens per sequence.  [default: 128,1024, or what fits the model]",
)
@click.option(
    "--largest",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    help="Nodes of the largest tree, root included.",
)
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    callback=_above_0,
    help="Approximate duration of the measurement.",
)
@click.option("--fresh", is_flag=True, help="Also choose the weight layouts again (CPU).")
@figures_option
@click.option("--plot", "picture", type=PATH, help="Plot the cost curves to this file.")
@model_options
def tune(
    draft: str | None,
    head: str | None,
    batch: str,
    context: str | None,
    largest: int,
    seconds: float,
    fresh: bool,
    output: Path | None,
    picture: Path | None,
    model: ModelOptions,
) -> None:
    """Measure what a step costs on this machine, and save it for later runs.

    A tree pays if more of its tokens are accepted than its break-even.
    """
    given = {flag: name for flag, name in (("draft", draft), ("head", head)) if name}
    share = 0.3 if given else 0.0
    contexts = _CONTEXTS if context is None else _numbers("--context", context)

    from draftwood.cli._timed_steps import check, run_steps
    from draftwood.costs.measure import (
        SIZES,
        Grid,
        measure_levels,
        measure_prompts,
        measure_target,
    )
    from draftwood.costs.recall import places_of
    from draftwood.costs.store import key_of
    from draftwood.engine.host import ModelHost
    from draftwood.runner.attach import attach

    batches = _numbers("--batch", batch)
    grid = Grid(_sizes(largest, SIZES), contexts, batches, (0.65 - share) * seconds)
    if output is not None:
        check_writable(output)
    if picture is not None:
        _tune_tables.check(picture, output)
    warn_if_busy(model.threads)
    loaded = model.load()
    target = attach(loaded.model, fresh=fresh)
    host = ModelHost(target, loaded.tokenizer)
    if context is None:
        grid = grid.fitted(target.info.context_limit)

    # Rows and features for drafters take time as well.
    needs = reduce(or_, (spec.build(host).needs for spec in method("goose").drafters.values()))
    chains = {f"sd:{flag}={name}": name for flag, name in given.items()}
    specs = _drafters(given)
    drafters = {source: spec.build(host) for source, spec in specs.items()}
    free = free_memory(target.info.device)  # before caches are filled
    needs = reduce(or_, (drafter.needs for drafter in drafters.values()), needs)
    methods = [*_FITTED, *_HELD_OUT, *chains]
    each = 0.3 * seconds / len(methods) / len(grid.batches)
    prompt = _prompt(loaded.tokenizer, grid.contexts[0])
    with watched() as other:
        samples = {"target": measure_target(target, grid, needs)}
        reading = fit_prompts(measure_prompts(target, needs, 0.05 * seconds))
        for source, drafter in drafters.items():
            levels = replace(grid, seconds=share * seconds / len(drafters))
            samples[source] = measure_levels(drafter, source, target, levels)
            if not samples[source]:
                raise DraftwoodError(
                    f"the context of {specs[source].model} is too short to draft: give one with a "
                    "longer context"
                )
        steps = {
            (name, b): run_steps(target, host, name, prompt, b, each)
            for name in methods
            for b in grid.batches
        }
    curves = {name: fit(timed) for name, timed in samples.items()}
    found = StepCosts(curves.pop("target"), curves, prompt=reading)
    outside = [
        HostSample(step.tokens - step.batch, step.batch, step.seconds - step.target)
        for (name, _), taken in steps.items()
        for step in taken
        if name in _FITTED
    ]
    fixed, node, sequence = fit_host(outside)
    found = replace(found, fixed=fixed, node=node, sequence=sequence)
    source_of = {spec.model: source for source, spec in specs.items()}
    checks = [
        check(found, name, b, taken, source_of.get(chains.get(name), ""))
        for (name, b), taken in steps.items()
        if taken
    ]

    key = key_of(target.info, places_of(host, specs))
    saved = _save(key, found, other.others)
    if output is not None:  # first: the tables may have lost their reader
        settings = {**asdict(grid), "seconds": seconds, "draft": draft, "head": head}
        write_json(output, document(key, found, samples, checks, loaded.name, settings))
    if picture is not None:
        _tune_tables.plot(picture, {"target": found.target, **found.drafters}, samples)
    terminal = console()
    for b in grid.batches:
        for cached in grid.contexts:
            show(terminal, found, samples, grid.sizes, cached, b)
    terminal.print(
        f"outside forwards: {found.fixed * 1e3:.3f} ms per step, {found.node * 1e6:.1f} µs per "
        f"drafted node, {found.sequence * 1e3:.3f} ms per further sequence"
    )
    terminal.print(memory_of(target, drafters.values()).told(free))
    terminal.print(checks_table(checks))
    terminal.print(verdict(checks))
    click.echo(saved)


def _drafters(given: Mapping[str, str]) -> dict[str, DrafterSpec]:
    """The drafters of ``auto`` with these models, by source, so that it finds their costs."""
    found = method("auto", **given)
    return {source: spec for source, spec in found.drafters.items() if spec.model}


def _save(key: store.CostsKey, costs: StepCosts, others: Others | None) -> str:
    """Save costs measured on a quiet machine; returns the path, or why they are not saved."""
    if others is not None and cache.disturbed(others):
        return (
            f"not saved: other processes used {100 * others.share:.0f} % of the cores; measure "
            "again on a quiet machine"
        )
    return f"saved to {store.write(key, costs)}"


def show(
    console: Console,
    costs: StepCosts,
    samples: Mapping[str, Sequence[Sample]],
    sizes: Sequence[int],
    context: int,
    batch: int,
) -> None:
    """Print the tables for one context and batch size."""
    title = f"{context} cached tokens" + (f", {batch} sequences" if batch > 1 else "")
    table = Table(
        "drafted", "timed ms", "curve ms", "T(n)/T(1)", "break-even", title=title, box=SIMPLE_HEAD
    )
    for source in costs.drafters:
        table.add_column(f"break-even, chain of {source}")
    for row in target_rows(costs, samples["target"], sizes, context, batch):
        cells = [str(row.nodes), _ms(row.timed), _ms(row.seconds), f"{row.ratio:.2f}"]
        cells.append(f"{row.break_even:.2f}")
        cells += [f"{break_even:.2f}" for break_even in row.break_even_chains]
        table.add_row(*cells)
    console.print(table)
    for source in costs.drafters:
        table = Table(
            "nodes of a level", "timed ms", "curve ms", "over T(1)", title=source, box=SIMPLE_HEAD
        )
        timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples[source]}
        cached, one = context * batch, costs.target.seconds(batch, context * batch, batch)
        for width in sizes:
            seconds = costs.drafters[source].seconds(width * batch, cached, batch)
            measured = _ms(timed.get((width * batch, cached, batch)))
            table.add_row(str(width), measured, _ms(seconds), f"{seconds / one:.2f}")
        console.print(table)


def memory_of(target: Runner, drafters: Collection[Drafter]) -> RequestMemory:
    """What requests of ``auto`` take in the caches of a target and of drafters."""
    info = target.info
    return RequestMemory(
        token=info.token_bytes + sum(drafter.token_bytes for drafter in drafters),
        slot=info.slot_bytes + sum(drafter.slot_bytes for drafter in drafters),
        node=info.node_bytes + sum(drafter.node_bytes for drafter in drafters),
        nodes=method("auto").policy.budget + 1,
        block=target.block,
    )


def checks_table(checks: Sequence[Check]) -> Table:
    """Table of predicted and measured step times."""
    table = Table(
        "method", "batch", "steps", "measured ms", "predicted ms", "ratio", box=SIMPLE_HEAD
    )
    for found in checks:
        figures = [_ms(found.measured), _ms(found.predicted), f"{found.ratio:.2f}"]
        table.add_row(found.method, str(found.batch), str(found.steps), *figures)
    return table


def verdict(checks: Sequence[Check]) -> str:
    """Whether predictions are good enough for ``auto``."""
    ratios = [found.ratio for found in checks]
    if not ratios:
        return "No step could be timed: give more --seconds."
    spread = max(ratios) / min(ratios)
    if spread <= _SPREAD:
        return (
            f"The ratios differ by {100 * (spread - 1):.0f} %: good. auto compares steps, so an "
            "error shared by all of them does not matter."
        )
    return (
        f"The ratios differ by {100 * (spread - 1):.0f} %, so auto's first trees will have the "
        "wrong size. Measure again on a quiet machine, with more --seconds."
    )


def document(
    key: store.CostsKey,
    costs: StepCosts,
    samples: Mapping[str, Sequence[Sample]],
    checks: Sequence[Check],
    model: str,
    settings: Mapping[str, object],
) -> dict[str, object]:
    """Costs, samples and checks as JSON; all times are in seconds."""
    from draftwood.lab.bench.provenance import provenance

    return {
        "provenance": provenance(
            model={"name": model, "dtype": key.dtype, "device": key.device},
            settings=settings,
            sets=[],
        ),
        "key": asdict(key),
        "costs": costs.to_json(),
        "samples": {name: [asdict(one) for one in found] for name, found in samples.items()},
        "checks": [asdict(found) for found in checks],
    }


def _sizes(largest: int, usual: Sequence[int]) -> tuple[int, ...]:
    """The usual sizes and powers of two up to ``largest``, and ``largest``."""
    found = [*usual, *(1 << i for i in range(largest.bit_length()))]
    return tuple(sorted({*(size for size in found if size <= largest), largest}))


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    return tuple(sorted(set(numbers(flag, text, int, "write numbers, such as 1,4"))))


def _prompt(tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[int]:
    """A repetitive text, with which copying drafters fill their budgets."""
    ids = list(tokenizer.encode(_TEXT))
    return (ids * (1 + tokens // len(ids)))[:tokens]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"
