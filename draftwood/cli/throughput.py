"""``draftwood throughput``: tokens per second and latency of methods at given concurrencies."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from draftwood.cli._options import (
    ModelOptions,
    chat_option,
    console,
    draft_option,
    figures_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    numbers,
    prompts_option,
    setting_values,
    temperature_option,
    top_k_option,
    top_p_option,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.costs.busy import (
    counters,
    total_usage,
    usage_between,
    warn_if_busy,
)
from draftwood.errors import DraftwoodError
from draftwood.files import check_output, is_stream, write_json
from draftwood.heap import frozen_heap
from draftwood.lab.bench.prompts import files, sources
from draftwood.lab.bench.quiet import recorded as recorded_load
from draftwood.lab.bench.quiet import warning
from draftwood.methods import check as check_method
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.lab.bench.throughput import Pass, ThroughputFigures

SCHEMA = 1
_MOST = 64
_WARM = 8
"""Most new tokens of an answer of the warm-up."""
_EXAMPLES = """\b
Examples:
  draftwood throughput --prompts speed_bench.jsonl --methods ar,auto --concurrency 1,4,16
  draftwood throughput --prompts hf:nvidia/SPEED-Bench:qualitative --json load.json
"""


@dataclass(frozen=True)
class ThroughputDocument:
    """What ``--json`` holds; figures by method, one entry for each concurrency."""

    schema: int
    complete: bool
    provenance: dict[str, object]
    methods: dict[str, list[ThroughputFigures]]


@click.command(cls=Command, epilog=_EXAMPLES)
@prompts_option
@limit_option
@click.option("--methods", default="ar,auto", show_default=True, help="Methods of Draftwood.")
@click.option(
    "--concurrency",
    default="1,4,16",
    show_default=True,
    metavar="N[,N]",
    help=f"Users at a time, 1 to {_MOST}; each has one request at a time.",
)
@click.option("--memory", help="Most memory of keys and values, such as 4GB; requests wait for it.")
@model_options
@max_new_tokens_option()
@temperature_option
@top_k_option
@top_p_option
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Passes of each method, every second one in reversed order; the median pass is shown.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first prompt.")
@draft_option
@head_option
@chat_option
@truncate_option
@figures_option
def throughput(
    prompts: str,
    methods: str,
    concurrency: str,
    memory: str | None,
    model: ModelOptions,
    temperature: float,
    top_k: int,
    top_p: float,
    repeats: int,
    seed: int,
    output: Path | None,
    **others: Any,
) -> None:
    """Measure throughput and latency at given concurrencies, as of a server.

    So many users send the prompts one after another, each the next one when the last is answered.
    Figures are by category: acceptance length, tokens per second of a user and of all.
    """
    names = list(dict.fromkeys(["ar", *map(str.strip, methods.split(","))]))
    for name in names:
        check_method(name)
    users = _users(concurrency)
    if output is not None:
        check_output(output, [*files(prompts), *setting_values(names)])

    from draftwood.engine.engine import Engine
    from draftwood.engine.memory import memory_bytes
    from draftwood.lab.bench.contenders import OwnChoice, Stage, choose
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.lab.bench.measure import Decoding
    from draftwood.lab.bench.prompts import check_count, read
    from draftwood.lab.bench.provenance import provenance
    from draftwood.lab.bench.runs import items
    from draftwood.lab.bench.settings import Settings
    from draftwood.lab.bench.throughput import in_turn, of_passes, serve, timed_pass

    memory_bytes(memory)  # before the model is loaded
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    settings = Settings(
        prompts=sources(prompts),
        methods=tuple(names),
        **model.settings,
        **others,
        sampling=sampling,
        seeds=(seed,),
        batch=max(users),
        repeats=repeats,
    )
    choices = [each for each in choose(names, settings.defaults) if isinstance(each, OwnChoice)]
    settings.defaults.check(names)
    members = read(settings.prompts, settings.limit)
    check_count("--concurrency", max(users), len(members))
    warn_if_busy(model.threads)
    stage = Stage(partial(settings.load, {each.name: each.method for each in choices}))
    choices = [each.equipped(stage) for each in choices]
    contexts = Contexts(
        stage.loaded.tokenizer,
        stage.target.info.context_limit,
        settings.max_new_tokens,
        chat=settings.chat,
        truncate=settings.truncate,
    )
    contexts.check(members)
    decoding = Decoding(settings.max_new_tokens, stage.loaded.eos)
    recorded = {**settings.recorded(), "concurrency": list(users), "seed": seed}
    origin = provenance(model=stage.facts(), settings=recorded, sets=settings.prompts)
    terminal = console(stderr=True)
    for note in filter(None, (each.note for each in choices)):
        terminal.print(note, markup=False)
    asked = items(members, sampling)
    found: dict[str, list[ThroughputFigures]] = {each.name: [] for each in choices}
    done: list[Pass] = []
    began = counters()

    def served(choice: OwnChoice, count: int) -> Pass:
        options: dict[str, Any] = {"max_batch": count, "memory": memory, "host": stage.host}
        engine = Engine(stage.target, choice.method, **options)
        # No timed request is the first to need its memory.
        serve(engine, asked[:count], contexts, replace(decoding, max_new_tokens=_WARM), count)
        engine = Engine(stage.target, choice.method, **options)
        done.append(timed_pass(engine, asked, contexts, decoding, count))
        return done[-1]

    def document(*, complete: bool) -> ThroughputDocument:
        whole = usage_between(began, counters())
        facts = {
            **origin,
            "other_processes": recorded_load(total_usage(each.others for each in done), whole),
        }
        return ThroughputDocument(SCHEMA, complete, facts, found)

    for count in users:
        passes: dict[str, list[Pass]] = {each.name: [] for each in choices}
        for choice in in_turn(choices, repeats):
            terminal.print(f"{choice.name}, {count} users", style="dim", markup=False)
            with frozen_heap():
                passes[choice.name].append(served(choice, count))
        plain = passes["ar"][0].served
        for choice in choices:
            against = plain if choice.same_tokens(temperature) else None
            found[choice.name].append(of_passes(passes[choice.name], count, against))
        if output is not None and not is_stream(output):  # one takes a single document
            write_json(output, document(complete=False))
    whole = document(complete=True)
    if output is not None:
        write_json(output, whole)
    _show(terminal, whole, repeats)
    click.echo(json.dumps({"tokens_per_second": _speeds(found), "concurrency": list(users)}))


def _users(text: str) -> tuple[int, ...]:
    users = numbers("--concurrency", text, int, "write integers, such as 1,4,16")
    for count in users:
        if not 1 <= count <= _MOST or users.count(count) > 1:
            raise DraftwoodError(
                f"--concurrency {text!r}: give numbers from 1 to {_MOST}, each once"
            )
    return users


def _speeds(found: dict[str, list[ThroughputFigures]]) -> dict[str, list[float]]:
    return {name: [each.tokens_per_second for each in rows] for name, rows in found.items()}


def _show(terminal: Console, document: ThroughputDocument, repeats: int) -> None:
    """Print the tables, and what weakens their times."""
    terminal.print(_table(document.methods))
    terminal.print(_categories(document.methods))
    terminal.print(_order([*document.methods], repeats), style="dim", markup=False)
    if (disturbed := warning(document.provenance)) is not None:
        terminal.print(disturbed, style="yellow", markup=False)


def _order(names: list[str], repeats: int) -> str:
    """Whether the order of the methods may show in the figures."""
    if repeats == 1:
        return (
            f"One pass of each method, in the order {', '.join(names)}: what the machine did "
            "meanwhile is not averaged (--repeats)."
        )
    return f"The median of {repeats} passes, every second one in reversed order."


def _table(found: dict[str, list[ThroughputFigures]]) -> Table:
    shown = Table(
        *("method", "users", "tok/s", "a user's tok/s", "acceptance length", "TTFT p50, p99 ms"),
        *("TPOT p50, p99 ms", "latency p50, p99 s", "same tokens"),
        box=None,
    )
    for name, rows in found.items():
        for each in rows:
            shown.add_row(
                name,
                str(each.concurrency),
                f"{each.tokens_per_second:.1f}",
                f"{each.all.tokens_per_second_per_user:.1f}",
                _number(each.all.mean_acceptance_length),
                f"{_number(each.ttft_ms.p50, 0)}, {_number(each.ttft_ms.p99, 0)}",
                f"{_number(each.tpot_ms.p50, 1)}, {_number(each.tpot_ms.p99, 1)}",
                f"{_seconds(each.latency_ms.p50)}, {_seconds(each.latency_ms.p99)}",
                "-" if each.identical is None else f"{each.identical} of {each.all.requests}",
            )
    return shown


def _categories(found: dict[str, list[ThroughputFigures]]) -> Table:
    """Acceptance length by category, at the lowest concurrency."""
    tasks = list(next(iter(found.values()))[0].by_category)
    shown = Table("acceptance length", *tasks, box=None)
    for name, rows in found.items():
        lengths = [rows[0].by_category[task].mean_acceptance_length for task in tasks]
        shown.add_row(name, *map(_number, lengths))
    return shown


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _seconds(milliseconds: float | None) -> str:
    return _number(None if milliseconds is None else milliseconds / 1e3)
