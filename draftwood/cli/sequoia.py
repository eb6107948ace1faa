"""``draftwood sequoia``: measures acceptance by rank and writes the best static tree."""

from __future__ import annotations

from functools import partial
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
from draftwood.errors import DraftwoodError
from draftwood.files import check_output, write_json
from draftwood.lab.bench.prompts import files, sources
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.protocols import Target


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
    check_output(output, files(prompts))
    given = {"draft": draft, "head": head, "drafter": drafter}
    from draftwood.lab.bench.makers.rank_trees import RankCounts, count, one_level
    from draftwood.lab.bench.provenance import provenance
    from draftwood.lab.bench.ranks import target_seconds
    from draftwood.lab.bench.settings import Settings

    settings = Settings(
        prompts=sources(prompts),
        methods=(),
        limit=limit,
        max_new_tokens=max_new_tokens,
        sampling=SamplingParams(temperature=temperature),
        **model.settings,
    )
    counted, target = count(
        settings, one_level(ranks, **given), ranks, nodes, partial(progress, label="counting")
    )
    found = RankCounts(counted, target_seconds(target, nodes, _fitting(context, nodes, target)))
    tree = found.tree(fastest=fastest, nodes=nodes, deepest=max_depth)
    if not tree.paths:
        raise DraftwoodError(_no_tree(any(counted.accepted)))
    facts = {"name": model.name, "dtype": str(target.info.dtype).removeprefix("torch.")}
    origin = provenance(model=facts, settings={}, sets=settings.prompts)
    write_json(output, found.content(tree) | {"provenance": origin})
    click.echo(
        f"{output}: {len(tree.paths)} nodes, {tree.depth} levels, "
        f"{tree.length:.2f} expected tokens per step"
    )


def _no_tree(accepted: bool) -> str:
    """Why the search found no tree."""
    if not accepted:
        return "no drafted token was accepted, so there is no tree: give another drafter"
    return (
        "no tree is faster than plain decoding here, so none is written: give --largest for one "
        "of all nodes, or another drafter"
    )


def _fitting(context: int, nodes: int, target: Target) -> int:
    """The context, or what the model's own holds beside the largest tree, if that is less.

    The prompts have been decoded by now, so it is too late to refuse it.
    """
    most = max(1, target.info.context_limit - nodes - 1)
    if context > most:
        click.echo(f"steps are timed at {most} cached tokens: more do not fit the model", err=True)
    return min(context, most)
