"""``draftwood sequoia``: measures acceptance by rank and writes the best static tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    draft_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    progress,
    prompts_option,
    temperature_option,
)
from draftwood.cli._sections import Command
from draftwood.files import check_writable, write_json
from draftwood.lab.bench.prompts import read, sources
from draftwood.lab.bench.sources import Source
from draftwood.methods.shipped import check_drafts
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    import torch


@click.command(cls=Command)
@click.argument("output", type=PATH)
@prompts_option
@limit_option
@draft_option
@head_option
@click.option("--drafter", help="Kind of drafter, model or eagle3; --draft and --head imply it.")
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Most children per node: ranks whose acceptance is counted.",
)
@click.option(
    "--nodes", type=click.IntRange(1), default=59, show_default=True, help="Most nodes of the tree."
)
@click.option(
    "--max-depth",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="Most levels of the tree.",
)
@click.option(
    "--fastest/--largest",
    default=True,
    show_default=True,
    help="Choose the fastest size and depth on this machine, or use all nodes.",
)
@max_new_tokens_option(least=2)
@temperature_option
@click.option(
    "--context",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Cached tokens at which steps are timed.",
)
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
    """Find the best static tree for a target and a drafter, and write it to OUTPUT.

    Use it with --method sequoia --tree OUTPUT.
    """
    check_writable(output)
    given = {"draft": draft, "head": head, "drafter": drafter}
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Request
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.lab.bench.makers.rank_trees import RankCounts, one_level
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
    found = RankCounts(
        count_ranks(engine, progress(requests, "counting"), ranks),
        target_seconds(target, nodes, context),
    )
    tree = found.tree(fastest=fastest, nodes=nodes, deepest=max_depth)
    write_json(output, found.content(tree) | _origin(sets, loaded.name, target.info.dtype))
    click.echo(
        f"{output}: {len(tree.paths)} nodes, {tree.depth} levels, "
        f"{tree.length:.2f} expected tokens per step"
    )


def _origin(sets: tuple[Source, ...], model: str, dtype: torch.dtype) -> dict[str, object]:
    facts = {"name": model, "dtype": str(dtype).removeprefix("torch.")}
    from draftwood.lab.bench.provenance import provenance

    return {"provenance": provenance(model=facts, settings={}, sets=sets)}
