"""The ``bench`` subcommand: flags, progress, table and the line that a script reads.

Knows nothing of how runs are made; :mod:`draftwood.bench.session` does.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from draftwood.bench.document import summary, write
from draftwood.bench.peers import names as peer_names
from draftwood.bench.runs import Job
from draftwood.bench.session import Session, Settings
from draftwood.bench.table import table
from draftwood.bench.trace import Trace
from draftwood.files import check_writable
from draftwood.options import model_options
from draftwood.sampling import SamplingParams

_FILE_WIDTH = 120
"""Columns of the table where there is no terminal to ask."""


@click.command()
@click.option("--prompts", required=True, metavar="FILE[,FILE]", help="JSON lines; one set each.")
@click.option("--limit", type=click.IntRange(1), help="Most prompts of each set, evenly spaced.")
@click.option(
    "--methods",
    default="ar,pld,tr,goose,hf",
    show_default=True,
    help="Comma-separated, settings behind colons (goose:budget=16). Other libraries' ways, "
    f"described in docs/bench.md: {', '.join(peer_names())}.",
)
@click.option(
    "--peers",
    is_flag=True,
    help="Add every peer that --methods does not name; what is not available is reported.",
)
@model_options
@click.option("--max-new-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="0 is off.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of sampling and of order.")
@click.option("--budget", type=int, help="Most nodes drafted a step, where a method sets none.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--chat/--no-chat",
    default=None,
    help="The chat template for all prompts, or for none (else: for dialogues, if there is one).",
)
@click.option("--truncate", type=click.IntRange(1), help="Keep the last N tokens of long prompts.")
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write everything here.")
@click.option("--trace", "trace", type=click.Path(path_type=Path), help="Write a line per step.")
def bench(
    prompts: str,
    limit: int | None,
    methods: str,
    peers: bool,
    model: str,
    dtype: str,
    device: str,
    trust_remote_code: bool,
    threads: int | None,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    budget: int | None,
    batch: int,
    repeats: int,
    chat: bool | None,
    truncate: int | None,
    output: Path | None,
    trace: Path | None,
) -> None:
    """Time methods against plain decoding on the same prompts, and check their tokens.

    Methods take turns on every prompt, in shuffled order. The last line on standard output is the
    summary as JSON; docs/bench.md defines every figure.
    """
    for path in (output, trace):
        if path is not None:
            check_writable(path)
    session = Session(
        Settings(
            prompts=tuple(Path(name) for name in prompts.split(",") if name),
            methods=tuple(methods.split(",")),
            peers=peers,
            limit=limit,
            model=model,
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
            threads=threads,
            max_new_tokens=max_new_tokens,
            sampling=SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
            budget=budget,
            batch=batch,
            repeats=repeats,
            chat=chat,
            truncate=truncate,
        )
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(stderr=True, width=_FILE_WIDTH)
    for name, reason in session.missing.items():
        console.print(f"missing {name}: {reason}", markup=False, highlight=False)
    complete = False
    try:
        with ExitStack() as stack:
            progress = stack.enter_context(_progress(console))
            watch = None
            if trace is not None:
                watch = Trace(stack.enter_context(trace.open("w", encoding="utf-8")))
            session.execute(_starting(progress, len(session.jobs)), watch)
        complete = True
    finally:  # interrupted or not, what has been measured is kept
        found = session.document(complete=complete)
        if output is not None:
            write(output, found)
        console.print(table(found))
        click.echo(json.dumps(summary(found, output)))


def _progress(console: Console) -> Progress:
    # Drawn between runs only: a thread that redraws would take time from what is measured.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )


def _starting(progress: Progress, total: int) -> Callable[[Job, bool], None]:
    bar = progress.add_task("warm-up", total=total)
    begun = 0

    def starting(job: Job, timed: bool) -> None:
        nonlocal begun
        what = job.method if timed else f"warm-up {job.method}"
        name = job.items[0].prompt.id
        progress.update(bar, description=f"{what} · {name}", completed=begun, refresh=True)
        begun += timed

    return starting
