"""``draftwood harvest``: makes an adjacency table of what a model says after a text's pairs."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    model_options,
    not_in_option,
    refuse_overlap,
)
from draftwood.cli._sections import Command
from draftwood.cli._settings_flags import settings_flags
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, write_result
from draftwood.lab.harvest.plan import HarvestPlan
from draftwood.lab.harvest.shards import WorkDirectory
from draftwood.lab.harvest.texts import read_texts


@click.command(cls=Command)
@click.argument("output", type=PATH, metavar="OUT")
@click.option(
    "--text",
    required=True,
    multiple=True,
    metavar="FILE[,FILE]",
    help="Text: .txt with lines <|endoftext|> between documents, or .jsonl with a member text; "
    "either may end in .gz. Repeatable.",
)
@settings_flags("plan", HarvestPlan())
@not_in_option
@click.option(
    "--work",
    type=PATH,
    help="Keep what was read in this directory, from which further tables are made without "
    "reading again.  [default: OUT.work, deleted at the end]",
)
@model_options
def harvest(
    output: Path,
    text: tuple[str, ...],
    plan: HarvestPlan,
    not_in: str | None,
    work: Path | None,
    model: ModelOptions,
) -> None:
    """Collect what a model says after the frequent pairs of tokens of a text.

    The table goes to OUT, a safetensors file; use it with --adjacency.table OUT. Best is text like
    the model's own answers. An interrupted run is resumed by the same command.
    """
    check_writable(output)
    if output.exists():
        raise DraftwoodError(f"{output} exists: delete it, or name another file")
    directory = WorkDirectory(work or output.with_name(f"{output.name}.work"))
    check_writable(directory.path.with_name("harvest"))
    names = [name for given in text for name in given.split(",") if name]
    if not names:
        raise DraftwoodError("--text names no file: give one or more")
    texts = read_texts([Path(name) for name in names])
    refuse_overlap(
        not_in, ((each.name, each.text) for source in texts for each in source.documents)
    )
    _check_width(plan, model)

    from draftwood.drafters.adjacency.table_file import to_bytes
    from draftwood.lab.harvest.run import harvest_of
    from draftwood.runner.attach import attach

    loaded = model.load()
    found = harvest_of(loaded, attach(loaded.model), texts, plan)
    directory.prepare(found.identity)
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with directory.alone():
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading", total=found.facts.tokens)
            table = found.run(directory, lambda tokens: bar.advance(task, tokens))
        content = to_bytes(table)
        write_result(output, content)
        if work is None:
            directory.delete()
    click.echo(
        f"{output}: {len(table.keys):,} rows, {len(content) / 1e6:.2f} MB, of "
        f"{table.facts.tokens:,} tokens"
    )


def _check_width(plan: HarvestPlan, model: ModelOptions) -> None:
    """Refuse a table wider than the vocabulary, before the weights are loaded."""
    from draftwood.models import vocabulary_size

    size = vocabulary_size(model.name, trust_remote_code=model.trust_remote_code)
    if plan.width > size:
        raise DraftwoodError(f"--width is {plan.width}, and the vocabulary has {size} tokens")
