"""``draftwood tree``: draws the tree of one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._method_flags import (
    MethodCommand,
    method_of,
    method_option,
    method_options,
    settings_given,
)
from draftwood.cli._options import PATH, ModelOptions, model_options, setting_values
from draftwood.cli._prompt import encode, prompt_options, read_prompt
from draftwood.errors import DraftwoodError
from draftwood.files import check_output, write_text

if TYPE_CHECKING:
    from rich.tree import Tree
    from transformers import PreTrainedTokenizerBase

    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Request
    from draftwood.engine.stats import StepStats

_TITLE = 40
"""Characters of the prompt in a picture's title."""
_SEARCHED = 256
"""Most tokens to decode until a step drafts."""

_EXAMPLES = """\b
Examples:
  draftwood tree "def quicksort("
  draftwood tree "one two three one two" --method goose --step 3 --svg tree.svg
  draftwood tree --file prompt.txt --model BIG --method talon --draft SMALL
"""


@click.command(cls=MethodCommand, epilog=_EXAMPLES)
@prompt_options
@click.option(
    "--step",
    type=click.IntRange(1),
    help="Number of the step.  [default: the first that drafts]",
)
@click.option(
    "--svg",
    "drawing",
    type=PATH,
    metavar="FILE",
    help="Also write the tree to FILE as SVG.",
)
@model_options
@method_option
@method_options
@click.pass_context
def tree(
    ctx: click.Context,
    /,
    prompt: str | None,
    path: Path | None,
    chat: bool,
    step: int | None,
    drawing: Path | None,
    name: str,
    model: ModelOptions,
) -> None:
    """Draw the tree that one step drafts after PROMPT; accepted nodes are green.

    Without PROMPT and --file, the prompt is read from standard input.
    """
    chosen = method_of(ctx, name)
    text = read_prompt(prompt, path)
    if drawing is not None:
        check_output(drawing, [path, *settings_given(ctx).values(), *setting_values([name])])

    from rich.console import Console

    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Request
    from draftwood.runner.attach import attach

    loaded = model.load({name: chosen})
    ids = encode(loaded.tokenizer, text, chat=chat)
    engine = Engine(attach(loaded.model), chosen)
    longest = _SEARCHED if step is None else 1 + step * (chosen.policy.budget + 1)
    request = Request(ids, max_new_tokens=longest, eos=loaded.eos)
    number, stats, committed = _find_step(engine, request, step)
    title = f"{chosen.name}, step {number} after {_beginning(text)}"
    if drawing is not None:
        write_text(drawing, as_svg(stats, committed, loaded.tokenizer, title))
    console = Console(highlight=False)
    console.print(f"{chosen.name}, step {number}:", style="dim")
    console.print(picture(stats, loaded.tokenizer))


def _find_step(
    engine: Engine, request: Request, step: int | None
) -> tuple[int, StepStats, tuple[int, ...]]:
    """Number, statistics and committed tokens of ``step``, or of the first step that drafts.

    Raises:
        DraftwoodError: there is no such step.
    """
    from draftwood.engine.request import Delta, Stepped, checked

    seen = 0
    committed: tuple[int, ...] = ()
    for event in checked(engine.stream([request])):
        if isinstance(event, Delta):
            committed = event.tokens
        elif isinstance(event, Stepped):
            seen += 1
            if seen == step or (step is None and event.stats.tree.drafted):
                return seen, event.stats, committed
    if step is None:
        raise DraftwoodError(
            f"none of the {seen} steps drafted anything: give another prompt or --method"
        )
    raise DraftwoodError(
        f"there is no step {step}: the text ended after {seen} steps; give an earlier --step"
    )


def picture(stats: StepStats, tokenizer: PreTrainedTokenizerBase) -> Tree:
    """The step's tree as text, with the accepted path in green and the source of every node."""
    from rich.markup import escape
    from rich.tree import Tree

    nodes = stats.tree
    accepted = {0, *stats.path}

    def label(i: int) -> str:
        text = escape(repr(tokenizer.decode([int(nodes.tokens[i])])))
        source = f" [dim]{nodes.sources[i]}[/]" if i else ""
        return f"[bold green]{text}[/]{source} ✓" if i in accepted else f"{text}{source}"

    drawn = {0: Tree(label(0))}
    for i in range(1, len(nodes)):
        drawn[i] = drawn[int(nodes.parents[i])].add(label(i))
    root = drawn[0]
    root.label = (
        f"{root.label}  [dim]({nodes.drafted} drafted, {len(stats.path)} accepted, "
        f"route {nodes.route or '-'})[/]"
    )
    return root


def _beginning(text: str) -> str:
    """Beginning of a prompt, quoted, on one line."""
    words = " ".join(text.split())
    return repr(words if len(words) <= _TITLE else words[:_TITLE] + "…")


def as_svg(
    stats: StepStats,
    committed: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    title: str = "",
) -> str:
    """The step's tree as SVG; the bonus is the last of the ``committed`` tokens."""
    from draftwood.lab.picture import svg

    texts = [str(tokenizer.decode([token])) for token in stats.tree.tokens.tolist()]
    bonus = [str(tokenizer.decode([token])) for token in committed[len(stats.path) :]]
    return svg(stats.tree, stats.path, texts, bonus[0] if bonus else None, title=title)
