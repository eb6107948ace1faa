"""The ``sequoia`` subcommand: measures acceptance by rank and saves the best static tree for it.

The counting is in :mod:`draftwood.bench.ranks`, the search in :mod:`draftwood.theory`.
"""

from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import track

from draftwood import models
from draftwood.bench.contexts import Contexts
from draftwood.bench.document import write
from draftwood.bench.prompts import Source, read, sources
from draftwood.bench.provenance import provenance
from draftwood.bench.ranks import Ranks, count_ranks, target_seconds
from draftwood.engine import Engine
from draftwood.files import check_writable
from draftwood.methods import method
from draftwood.options import model_options
from draftwood.requests import Request
from draftwood.sampling import SamplingParams
from draftwood.target.attach import attach
from draftwood.theory.sequoia_tree import RankTree, best_tree, fastest_tree


@click.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--prompts", required=True, metavar="FILE[,FILE]", help="JSON lines; one set each.")
@click.option("--limit", type=click.IntRange(1), help="Most prompts of each set, evenly spaced.")
@click.option("--draft", help="Directory or hub id of the draft model; embedded-draft otherwise.")
@click.option("--head", help="Directory or hub id of an EAGLE-3 head to draft with instead.")
@click.option("--drafter", help="Which drafter answers: model or eagle3.")
@click.option("--ranks", type=click.IntRange(1), default=10, show_default=True)
@click.option(
    "--nodes", type=click.IntRange(1), default=59, show_default=True, help="Largest tree."
)
@click.option("--max-depth", type=click.IntRange(1), default=12, show_default=True)
@click.option(
    "--fastest/--largest",
    default=True,
    show_default=True,
    help="The size and depth that are fastest here, or all nodes.",
)
@click.option("--max-new-tokens", type=click.IntRange(2), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
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
    model: str,
    dtype: str,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
) -> None:
    """Search the static tree for a pair of models and write it to OUTPUT, for method sequoia.

    Use it with --method sequoia --file OUTPUT.
    """
    check_writable(output)
    given = {"draft": draft, "head": head, "drafter": drafter}
    one_level = method(
        f"fixed-tree:breadth={ranks}:depth=1:threshold=0:budget={ranks}",
        **{name: value for name, value in given.items() if value is not None},
    )
    sets = sources(prompts)
    members = read(sets, limit)
    if threads:
        torch.set_num_threads(threads)
    loaded = models.load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    target = attach(loaded.model)
    engine = Engine(target, one_level, loaded.tokenizer)
    contexts = Contexts(loaded.tokenizer, target.info.context_limit, max_new_tokens)
    contexts.check(members)
    sampling = SamplingParams(temperature=temperature)
    requests = [
        Request(contexts.after(member, ()).ids, max_new_tokens, sampling, eos=loaded.eos)
        for member in members
    ]
    progress = track(requests, "counting", console=Console(stderr=True), transient=True)
    found = count_ranks(engine, progress, ranks)
    times = target_seconds(target, nodes, context)
    tree = (
        fastest_tree(found.acceptance, found.draft_seconds, times, max_depth)
        if fastest
        else best_tree(found.acceptance, nodes, max_depth)
    )
    write(output, _content(found, tree, times) | _origin(sets, loaded.name, target.info.dtype))
    click.echo(
        f"{output}: {len(tree.paths)} nodes, {tree.depth} levels, "
        f"{tree.length:.2f} tokens expected a step"
    )


def _content(found: Ranks, tree: RankTree, times: list[float]) -> dict[str, object]:
    return {
        "acceptance": list(found.acceptance),
        "paths": [list(path) for path in tree.paths],
        "expected_length": tree.length,
        "steps": found.steps,
        "draft_ms": found.draft_seconds * 1e3,
        "target_ms": [round(seconds * 1e3, 4) for seconds in times],
    }


def _origin(sets: tuple[Source, ...], model: str, dtype: torch.dtype) -> dict[str, object]:
    facts = {"name": model, "dtype": str(dtype).removeprefix("torch.")}
    return {"provenance": provenance(model=facts, settings={}, sets=sets)}
