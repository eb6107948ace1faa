"""``draftwood tree``: draws the tree of one step, or checks tree building against golden cases."""

from collections.abc import Sequence
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.commands.generate import encode
from draftwood.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.extras import need
from draftwood.files import check_writable, write_bytes, write_text
from draftwood.golden import check_goose
from draftwood.options import method_of, model_options
from draftwood.picture import svg
from draftwood.requests import Delta, Request, Stepped, checked
from draftwood.stats import StepStats
from draftwood.target.attach import attach


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog="Further --setting value flags are the method's own: see 'draftwood methods NAME'.",
)
@click.argument("prompt", required=False)
@click.option("--step", type=click.IntRange(1), default=1, show_default=True, help="Which step.")
@click.option("--method", "name", default="auto", show_default=True)
@click.option("--budget", type=int, help="Most nodes drafted a step, root excluded.")
@click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template.")
@click.option(
    "--golden",
    type=click.Path(path_type=Path),
    help="Rebuild the spine trees of a JSON file of worked cases and compare.",
)
@click.option(
    "--svg",
    "drawing",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the tree to FILE as a picture, too.",
)
@click.option(
    "--png",
    "raster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The same picture as a PNG (needs matplotlib).",
)
@model_options
@click.pass_context
def tree(
    ctx: click.Context,
    /,
    prompt: str | None,
    step: int,
    name: str,
    budget: int | None,
    chat: bool,
    golden: Path | None,
    drawing: Path | None,
    raster: Path | None,
    model: str,
    dtype: str,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
) -> None:
    """Draw the tree of one step after PROMPT, the accepted path highlighted."""
    if golden is not None:
        if drawing is not None or raster is not None:
            raise DraftwoodError(
                "--golden draws nothing that --svg or --png could write: give one of them"
            )
        _check(golden)
        return
    if prompt is None:
        raise DraftwoodError("give a prompt to draw a tree for, or --golden FILE")
    if raster is not None:
        need("matplotlib", "plots")
    for file in (drawing, raster):
        if file is not None:
            check_writable(file)
    chosen = method_of(name, budget, ctx.args)
    if threads:
        torch.set_num_threads(threads)
    loaded = models.load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    ids = encode(loaded.tokenizer, prompt, chat=chat)
    engine = Engine(attach(loaded.model), chosen)
    request = Request(ids, max_new_tokens=1 + step * (chosen.policy.budget + 1), eos=loaded.eos)
    seen = 0
    committed: tuple[int, ...] = ()
    for event in checked(engine.stream([request])):
        if isinstance(event, Delta):
            committed = event.tokens
        elif isinstance(event, Stepped):
            seen += 1
            if seen == step:
                if drawing is not None:
                    write_text(drawing, as_svg(event.stats, committed, loaded.tokenizer))
                if raster is not None:
                    write_bytes(raster, as_png(event.stats, committed, loaded.tokenizer))
                Console(highlight=False).print(picture(event.stats, loaded.tokenizer))
                return
    raise DraftwoodError(f"the text ended after {seen} steps: ask for an earlier --step")


def picture(stats: StepStats, tokenizer: PreTrainedTokenizerBase) -> Tree:
    """The step's tree with the accepted path in green, and the source of every node."""
    nodes = stats.tree
    kept = {0, *stats.path}

    def label(i: int) -> str:
        text = escape(repr(tokenizer.decode([int(nodes.tokens[i])])))
        source = f" [dim]{nodes.sources[i]}[/]" if i else ""
        return f"[bold green]{text}[/]{source} ✓" if i in kept else f"{text}{source}"

    drawn = {0: Tree(label(0))}
    for i in range(1, len(nodes)):
        drawn[i] = drawn[int(nodes.parents[i])].add(label(i))
    root = drawn[0]
    root.label = (
        f"{root.label}  [dim]({nodes.drafted} drafted, {len(stats.path)} accepted, "
        f"route {nodes.route or '-'})[/]"
    )
    return root


def as_svg(stats: StepStats, committed: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    """The step's tree as SVG; ``committed``: the step's tokens, from which the bonus is known."""
    return svg(stats.tree, stats.path, *_texts(stats, committed, tokenizer))


def as_png(stats: StepStats, committed: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> bytes:
    """The same as PNG."""
    from draftwood.picture.raster import png

    return png(stats.tree, stats.path, *_texts(stats, committed, tokenizer))


def _texts(
    stats: StepStats, committed: Sequence[int], tokenizer: PreTrainedTokenizerBase
) -> tuple[list[str], str | None]:
    """Text of each node, and of the bonus if one was committed."""
    texts = [str(tokenizer.decode([token])) for token in stats.tree.tokens.tolist()]
    bonus = [str(tokenizer.decode([token])) for token in committed[len(stats.path) :]]
    return texts, bonus[0] if bonus else None


def _check(path: Path) -> None:
    report = check_goose(path)
    for mismatch in report.mismatches:
        click.echo(mismatch)
    click.echo(f"{report.cases - len(report.mismatches)} of {report.cases} cases reproduced")
    if report.mismatches:
        raise click.exceptions.Exit(1)
