"""``draftwood bench``: times methods and other libraries; the run is a :class:`Session`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    batch_option,
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
    repeats_option,
    setting_values,
    temperature_option,
    top_k_option,
    top_p_option,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.costs.busy import warn_if_busy
from draftwood.lab.bench import best
from draftwood.lab.bench.peers import names as peer_names
from draftwood.lab.bench.prompts import files, sources
from draftwood.lab.bench.stopping import stoppable
from draftwood.methods import check as check_method
from draftwood.sampling.params import SamplingParams

_SEEDS = "write integers, such as 0,1,2"
_EXAMPLES = """\b
Examples:
  draftwood bench --prompts prompts.jsonl --methods ar,auto,hf
  draftwood bench --prompts prompts.jsonl --model BIG --draft SMALL --methods ar,auto,talon
  draftwood bench --prompts prompts.jsonl --json run.json --html run.html
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@prompts_option
@limit_option
@click.option(
    "--methods",
    default="ar,pld,tr,goose,auto,hf",
    show_default=True,
    help="Methods, with settings after colons (goose:budget=16), and peers: "
    f"{', '.join(peer_names())}.",
)
@click.option(
    "--peers",
    is_flag=True,
    help="Add all peers; those that are not installed are reported.",
)
@click.option(
    "--best",
    "best_file",
    type=PATH,
    help="Run each method of this file, from 'draftwood search', as published and at its best.",
)
@model_options
@max_new_tokens_option()
@temperature_option
@top_k_option
@top_p_option
@click.option(
    "--seeds",
    default="0",
    show_default=True,
    metavar="N[,N]",
    help="Seeds; the first one also shuffles the order of runs.",
)
@click.option(
    "--budget",
    type=int,
    help="Most nodes drafted per step, of methods whose text gives no budget.",
)
@draft_option
@head_option
@click.option("--warm", is_flag=True, help="Keep the drafters' state from prompt to prompt.")
@batch_option
@repeats_option
@chat_option
@truncate_option
@figures_option
@click.option("--resume", is_flag=True, help="Resume the interrupted run of --json.")
@click.option("--html", type=PATH, help="Write a report as an HTML page.")
@click.option("--plots", type=PATH, help="Write plots to this directory.")
@click.option("--trace", type=PATH, help="Write one JSON line per step.")
def bench(
    prompts: str,
    methods: str,
    best_file: Path | None,
    model: ModelOptions,
    temperature: float,
    top_k: int,
    top_p: float,
    seeds: str,
    output: Path | None,
    resume: bool,
    html: Path | None,
    plots: Path | None,
    trace: Path | None,
    **others: Any,
) -> None:
    """Time methods against plain decoding on the same prompts, and compare their tokens.

    Methods take turns on every prompt, in shuffled order. The last line on standard output is a
    summary in JSON.
    """
    for text in filter(None, map(str.strip, methods.split(","))):
        if text.partition(":")[0] not in peer_names():
            check_method(text)
    from draftwood.cli._bench_view import Bar, progress, show
    from draftwood.lab.bench.document import summary
    from draftwood.lab.bench.outputs import Outputs
    from draftwood.lab.bench.session import Session
    from draftwood.lab.bench.settings import Settings
    from draftwood.lab.bench.trace import trace as write_steps

    settings = Settings(
        prompts=sources(prompts),
        methods=tuple(methods.split(",")),
        best=None if best_file is None else best.load(best_file),
        **model.settings,
        **others,
        sampling=SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p),
        seeds=numbers("--seeds", seeds, int, _SEEDS),
    )
    outputs = Outputs(json=output, html=html, plots=plots, trace=trace)
    outputs.check([*files(prompts), best_file, *setting_values(settings.methods)])
    journal = outputs.journal(resume=resume, warm=settings.warm)
    session = Session(settings, journal)
    warn_if_busy(model.threads)
    terminal = console(stderr=True)
    for name, reason in session.missing.items():
        terminal.print(f"missing {name}: {reason}", markup=False)
    for line in session.notes:
        terminal.print(line, markup=False)
    complete = False
    try:
        with ExitStack() as stack:
            stack.enter_context(stoppable())
            bar = Bar(stack.enter_context(progress(terminal)), session.ended, len(session.jobs))
            watch = None
            if trace is not None:
                file = stack.enter_context(trace.open("w", encoding="utf-8"))
                watch = partial(write_steps, file)
            session.execute(bar, watch)
        complete = True
    finally:  # write the finished runs, even if interrupted
        found = session.document(complete=complete)
        try:
            outputs.write(found)
            if complete:
                journal.remove()
        finally:
            show(terminal, found)
        click.echo(json.dumps(summary(found, output)))
