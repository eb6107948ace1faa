"""``draftwood demo``: runs six methods on a few prompts and compares speed and tokens."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from draftwood.cli._demo_prompts import CHATS, COMPLETIONS, prompts_for
from draftwood.cli._options import ModelOptions, model_options_with
from draftwood.cli._prompt import encode
from draftwood.cli._sections import Command
from draftwood.cli.generate import show
from draftwood.costs.busy import warn_if_busy
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.loop_marks import marked, note
from draftwood.lab.loops import pooled, repeats
from draftwood.methods import method
from draftwood.methods.recipe import Method

if TYPE_CHECKING:
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Completion, Request
    from draftwood.models import Loaded

_AUTO = "auto"
_CHAT_MODEL = "smollm2"
_LOOPS = (
    "most outputs of this small model loop, so the speed-ups of methods that copy are larger than "
    "on real text"
)

# Small budgets, for a small model on a CPU, where nodes are expensive (docs/costs.md).
METHODS = ("ar", "pld:budget=16", "tr:budget=16", "iso3:budget=16", "goose:budget=16", "auto")


@dataclass(frozen=True)
class Result:
    """A method on a prompt: its completion, and the seconds after its first token, per repeat."""

    completion: Completion
    times: tuple[float, ...]

    @property
    def tokens(self) -> int:
        """Number of timed tokens: all but the first, which the prompt's forward yields."""
        return max(0, len(self.completion.tokens) - 1)

    @property
    def seconds(self) -> float:
        """Median of the times."""
        return statistics.median(self.times)


@click.command(cls=Command)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(2),
    help="Most tokens to generate per prompt.  "
    f"[default: {CHATS.max_new_tokens}; for a model without chats {COMPLETIONS.max_new_tokens}]",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    help="Timed runs per method and prompt.  "
    f"[default: {CHATS.repeats}; for a model without chats {COMPLETIONS.repeats}]",
)
@model_options_with(
    _AUTO,
    "A directory, a hub id, smollm2 or embedded; auto: smollm2 if its package is installed, "
    "else embedded.",
)
def demo(
    max_new_tokens: int | None,
    repeats: int | None,
    model: ModelOptions,
) -> None:
    """Answer a few prompts with several methods and compare them.

    A chat model writes code, edits code, answers from a text and answers a question. A model
    without a chat template, or the embedded one, continues a code, a math and a prose text.
    """
    warn_if_busy(model.threads)

    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.engine.request import Request
    from draftwood.runner.attach import attach

    chosen = [method(text) for text in METHODS]
    loaded = _load(model)
    target = attach(loaded.model)
    host = ModelHost(target, loaded.tokenizer)
    engines = [Engine(target, each, loaded.tokenizer, host=host) for each in chosen]
    for line in filter(None, (each.note for each in engines)):
        click.secho(line, err=True, dim=True)
    console = Console()
    click.echo(f"model: {_about(loaded.name)}, {target.info.dtype}, {target.info.device}, greedy")
    shown = prompts_for(loaded)
    found: list[list[Result]] = []
    for name, text in shown.prompts.items():
        request = Request(
            encode(loaded.tokenizer, text, chat=shown.chat),
            max_new_tokens or shown.max_new_tokens,
            eos=loaded.eos,
        )
        console.rule(name)
        click.secho(text, dim=True, nl=shown.chat)
        if shown.chat:
            click.echo()
        _stream(engines[-1], request)
        click.echo("\n")
        found.append(_measure(engines, request, repeats or shown.repeats))
        console.print(_table(chosen, found[-1]))
    console.rule("all prompts")
    console.print(_total(chosen, list(zip(*found, strict=True))))
    console.print("green: drafted and accepted; plain: the target's own tokens")


def _load(model: ModelOptions) -> Loaded:
    """Load the model; for ``auto`` the chat model, or the embedded one where that is missing."""
    from draftwood import models

    if model.name == _AUTO:
        model = replace(model, name=_CHAT_MODEL)
        try:
            models.location(model.name)
        except DraftwoodError as error:
            click.echo(f"the embedded model runs, because {error}")
            model = replace(model, name="embedded")
    loaded = model.load()
    if model.name in models.EMBEDDED:
        click.echo(f"note: {_LOOPS}")
    return loaded


def _about(name: str) -> str:
    from draftwood.models.packaged import PACKAGED

    return f"{name} ({PACKAGED[name].about})" if name in PACKAGED else name


def _stream(engine: Engine, request: Request) -> None:
    from draftwood.engine.request import Delta, checked

    for event in checked(engine.stream([request])):
        if isinstance(event, Delta):
            show(event)


def _measure(engines: Sequence[Engine], request: Request, repeats: int) -> list[Result]:
    """Run the methods in turn, ``repeats`` times, so that a busy moment slows all of them."""
    times: list[list[float]] = [[] for _ in engines]
    completions: list[Completion] = []
    for _ in range(repeats):
        completions = [engine.generate([request])[0].checked() for engine in engines]
        for found, completion in zip(times, completions, strict=True):
            found.append(completion.seconds - completion.ttft)
    return [Result(c, tuple(t)) for c, t in zip(completions, times, strict=True)]


def _table(methods: Sequence[Method], results: Sequence[Result]) -> Table:
    plain = results[0]
    loop = repeats(plain.completion.tokens)
    table = Table(
        "method", "budget", "same tokens", "tok/s", "speed-up", "tokens per call", box=None
    )
    for each, result in zip(methods, results, strict=True):
        same = result.completion.tokens == plain.completion.tokens
        table.add_row(
            each.name,
            str(each.policy.budget),
            "[green]✓[/]" if same else "[red]✗[/]",
            *(
                marked(figure, loop.loops)
                for figure in (
                    *_speed([result], [plain]),
                    f"{result.completion.tally.mean_acceptance_length:.2f}",
                )
            ),
        )
    if loop.loops:
        table.caption = note(1, 1, loop.share)
    return table


def _total(methods: Sequence[Method], results: Sequence[Sequence[Result]]) -> Table:
    """Tokens per second over all prompts, one row a method."""
    loops = [repeats(plain.completion.tokens) for plain in results[0]]
    looping = sum(each.loops for each in loops)
    table = Table("method", "budget", "tok/s", "speed-up", box=None)
    for each, found in zip(methods, results, strict=True):
        figures = (marked(figure, looping) for figure in _speed(found, results[0]))
        table.add_row(each.name, str(each.policy.budget), *figures)
    if looping:
        table.caption = note(len(loops), looping, pooled(loops).share)
    return table


def _speed(results: Sequence[Result], plain: Sequence[Result]) -> tuple[str, str]:
    """Tokens per second over some prompts, and how many times those of plain decoding."""
    rate, base = (
        sum(each.tokens for each in group) / max(sum(each.seconds for each in group), 1e-9)
        for group in (results, plain)
    )
    return f"{rate:.0f}", f"{rate / base:.2f}x" if base else "-"
