"""The ``sequoia`` subcommand: measures acceptance by rank and saves the best static tree for it.

The counting is in :mod:`draftwood.lab.bench.ranks`, the search in :mod:`draftwood.lab.theory`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    draft_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    prompts_option,
    temperature_option,
)
from draftwood.files import check_writable, write_json
from draftwood.lab.bench.prompts import read, sources
from draftwood.lab.bench.sources import Source
from draftwood.methods.shipped import check_drafts
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    import torch


@click.command()
@click.argument("output", type=PATH)
@prompts_option
@limit_option
@draft_option
@head_option
@click.option("--drafter", help="Which drafter answers: model or eagle3.")
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Most children of a node; acceptance is counted for as many ranks.",
)
@click.option(
    "--nodes", type=click.IntRange(1), default=59, show_default=True, help="Largest tree."
)
@click.option(
    "--max-depth", type=click.IntRange(1), default=12, show_default=True, help="Deepest level."
)
@click.option(
    "--fastest/--largest",
    default=True,
    show_default=True,
    help="The size and depth that are fastest here, or all nodes.",
)
@max_new_tokens_option(least=2)
@temperature_option
@click.option("--context", type=click.IntRange(1), default=512, show_default=True, help="Timed at.")
@model_options
def sequoia(
    output: Path,
    prompts: str,
    limit: int | None,
    draft: str | None,
    head: str | None,
    drafter: str | None,
    ranks: int,
    nodes: int,
    max_depth: int,
    fastest: bool,
    max_new_tokens: int,
    temperature: float,
    context: int,
    model: ModelOptions,
) -> None:
    """Search the static tree for a pair of models and write it to OUTPUT, for method sequoia.

    Use it with --method sequoia:tree=OUTPUT.
    """
    check_writable(output)
    given = {"draft": draft, "head": head, "drafter": drafter}
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Request
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.lab.bench.makers.rank_trees import Counted, one_level
    from draftwood.lab.bench.ranks import count_ranks, target_seconds
    from draftwood.runner.attach import attach

    counting = one_level(ranks, **given)
    check_drafts(model.name, {"sequoia": counting}, trust_remote_code=model.trust_remote_code)
    sets = sources(prompts)
    members = read(sets, limit)
    loaded = model.load()
    target = attach(loaded.model)
    engine = Engine(target, counting, loaded.tokenizer)
    contexts = Contexts(loaded.tokenizer, target.info.context_limit, max_new_tokens)
    contexts.check(members)
    sampling = SamplingParams(temperature=temperature)
    requests = [
        Request(contexts.after(member, ()).ids, max_new_tokens, sampling, eos=loaded.eos)
        for member in members
    ]
    progress = track(requests, "counting", console=Console(stderr=True), transient=True)
    found = Counted(count_ranks(engine, progress, ranks), target_seconds(target, nodes, context))
    tree = found.tree(fastest=fastest, nodes=nodes, deepest=max_depth)
    write_json(output, found.content(tree) | _origin(sets, loaded.name, target.info.dtype))
    click.echo(
        f"{output}: {len(tree.paths)} nodes, {tree.depth} levels, "
        f"{tree.length:.2f} tokens expected a step"
    )


def _origin(sets: tuple[Source, ...], model: str, dtype: torch.dtype) -> dict[str, object]:
    facts = {"name": model, "dtype": str(dtype).removeprefix("torch.")}
    from draftwood.lab.bench.provenance import provenance

    return {"provenance": provenance(model=facts, settings={}, sets=sets)}
