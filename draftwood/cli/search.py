"""``draftwood search``: benchmarks a grid of settings and writes each method's best one.

:mod:`draftwood.lab.bench.grid` has the grid. ``draftwood bench --best`` runs the result, on other
prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    batch_option,
    chat_option,
    console,
    draft_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    not_in_option,
    prompts_option,
    refuse_overlapping_prompts,
    repeats_option,
    temperature_option,
    top_k_option,
    top_p_option,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.costs.busy import warn_if_busy
from draftwood.errors import DraftwoodError
from draftwood.files import is_stream, write_json
from draftwood.lab.bench import best, grid
from draftwood.lab.bench.prompts import files, read, sources
from draftwood.lab.bench.quiet import warning
from draftwood.lab.bench.stopping import stoppable
from draftwood.methods import recipe
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.lab.bench.document import Document
    from draftwood.lab.bench.settings import Settings

_FIGURES = ("tokens_per_second", "mean_acceptance_length")
"""Metrics to rank settings by."""


@click.command(cls=Command)
@click.argument("output", type=PATH)
@prompts_option
@limit_option
@not_in_option
@click.option(
    "--methods",
    help="Methods to search.  [default: all with a grid whose models are given]",
)
@click.option(
    "--by",
    type=click.Choice(_FIGURES),
    default="tokens_per_second",
    show_default=True,
    help="Criterion: speed on this machine, or tokens per step, which do not depend on it.",
)
@draft_option
@head_option
@max_new_tokens_option(least=2)
@temperature_option
@top_k_option
@top_p_option
@batch_option
@repeats_option
@chat_option
@truncate_option
@click.option("--resume", is_flag=True, help="Resume the interrupted search.")
@model_options
def search(
    output: Path,
    prompts: str,
    limit: int | None,
    not_in: str | None,
    methods: str | None,
    by: str,
    draft: str | None,
    head: str | None,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    batch: int,
    repeats: int,
    chat: bool | None,
    truncate: int | None,
    resume: bool,
    model: ModelOptions,
) -> None:
    """Find the best setting of each method and write it to OUTPUT, for bench --best OUTPUT.

    Every combination of a method's values (docs/bench.md lists them) is run on all prompts, beside
    the published setting. Use other prompts than for the benchmark.
    """
    from draftwood.cli._bench_view import Bar, progress
    from draftwood.lab.bench.outputs import Outputs
    from draftwood.lab.bench.session import Session
    from draftwood.lab.bench.settings import Settings

    settings = Settings(
        prompts=sources(prompts),
        methods=(),
        limit=limit,
        **model.settings,
        max_new_tokens=max_new_tokens,
        sampling=SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p),
        draft=draft,
        head=head,
        batch=batch,
        repeats=repeats,
        chat=chat,
        truncate=truncate,
    )
    names = _names(methods, draft, head)
    outputs = Outputs(json=output)
    outputs.check([*files(prompts), *files(not_in)])
    if is_stream(output):
        raise DraftwoodError(f"{output} is no file: name one, which bench --best can read")
    journal = outputs.journal(resume=resume)
    refuse_overlapping_prompts(not_in, read(settings.prompts, limit))
    warn_if_busy(model.threads)
    made = {name: _made(name, output, settings, fresh=not journal.done) for name in names}
    tried = {name: grid.contenders(name, made[name]) for name in names}
    everything = tuple(text for texts in tried.values() for text in texts)
    session = Session(replace(settings, methods=everything), journal)
    terminal = console(stderr=True)
    with ExitStack() as stack:
        stack.enter_context(stoppable())
        session.execute(
            Bar(stack.enter_context(progress(terminal)), session.ended, len(session.jobs))
        )
    document = session.document(complete=True)
    found = _found(document, tried, by, sorted(map(best.digest, session.prompts)))
    try:
        write_json(output, found)
    except OSError as error:
        raise outputs.unwritten(error, found) from error
    journal.remove()
    terminal.print(_table(found))
    disturbed = warning(document.provenance)
    if disturbed is not None and by != best.TIMELESS:
        terminal.print(disturbed, style="yellow", markup=False)
    click.echo(f"{output}: best settings of {len(tried)} methods, for bench --best {output}")


def _names(methods: str | None, draft: str | None, head: str | None) -> list[str]:
    given = [flag for flag, value in (("draft", draft), ("head", head)) if value is not None]
    if methods is None:
        return grid.searchable(given)
    names = [name.strip() for name in methods.split(",")]
    for name in names:
        recipe(name)
        if not grid.grid(name):
            has = ", ".join(grid.searchable(["draft", "head"]))
            raise DraftwoodError(f"{name} has no settings to search; these methods have: {has}")
    return list(dict.fromkeys(names))


def _made(name: str, output: Path, settings: Settings, *, fresh: bool) -> dict[str, Sequence[str]]:
    from draftwood.lab.bench import makers

    return {
        key: makers.make(setting.searched_by, output, settings, fresh=fresh)
        for key, setting in grid.grid(name).items()
        if setting.searched_by is not None
    }


def _found(
    document: Document, tried: Mapping[str, Sequence[str]], by: str, prompts: Sequence[str]
) -> best.Best:
    figures = {
        name: {figure: getattr(method, figure).middle for figure in _FIGURES}
        for name, method in document.methods.items()
    }

    def rank(text: str) -> float:
        value = figures[text][by]
        return float("-inf") if value is None else value

    methods = {
        name: best.Tried(texts[0], max(texts, key=rank), {text: figures[text] for text in texts})
        for name, texts in tried.items()
    }
    return best.Best(best.SCHEMA, by, document.provenance, methods, tuple(prompts))


def _table(found: best.Best) -> Table:
    shown = Table("method", "tried", "as published", "best", "best setting", box=None)
    for name, each in found.methods.items():
        both = (each.tried[text][found.by] for text in (each.published, each.best))
        cells = ["-" if value is None else f"{value:.2f}" for value in both]
        shown.add_row(name, str(len(each.tried)), *cells, each.best)
    return shown
