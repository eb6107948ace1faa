"""``draftwood demo``: runs six methods on three prompts and compares speed and tokens."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from draftwood.cli._options import ModelOptions, max_new_tokens_option, model_options
from draftwood.cli._prompt import encode
from draftwood.cli._sections import Command
from draftwood.cli.generate import show
from draftwood.costs.busy import warn_if_busy
from draftwood.lab.bench.loop_marks import marked, note
from draftwood.lab.loops import repeats
from draftwood.methods import method
from draftwood.methods.recipe import Method

if TYPE_CHECKING:
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Completion, Request

PROMPTS = {
    "code": '''class Temperature:
    """A temperature that can be read in several scales."""

    def __init__(self, celsius):
        self.celsius = celsius

    def to_fahrenheit(self):
        """Return the temperature in degrees Fahrenheit."""
        return self.celsius * 9 / 5 + 32

    def to_kelvin(self):
        """Return the temperature in kelvin."""
        return self.celsius + 273.15

    def from_fahrenheit(self, fahrenheit):
        """Set the temperature from degrees Fahrenheit."""
''',
    "math": (
        "Question: A baker makes 12 trays of rolls with 8 rolls on each tray. She sells 50 rolls "
        "in the morning and half of the rest in the afternoon. How many rolls are left?\nAnswer:"
    ),
    "prose": (
        "The old house stood at the end of the lane, and nobody in the village could remember a "
        "time when its windows had been lit. On the evening of the storm"
    ),
}
# Small budgets, for a small model on a CPU, where nodes are expensive (docs/costs.md).
METHODS = ("ar", "pld:budget=16", "tr:budget=16", "iso3:budget=16", "goose:budget=16", "auto")


@dataclass(frozen=True)
class Result:
    """A method on a prompt: its completion, and tokens per second of every repeat."""

    completion: Completion
    rates: tuple[float, ...]


@click.command(cls=Command)
@max_new_tokens_option(least=2)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Timed runs per method and prompt.",
)
@model_options
def demo(
    max_new_tokens: int,
    repeats: int,
    model: ModelOptions,
) -> None:
    """Decode a code, a math and a prose prompt with several methods and compare them."""
    warn_if_busy(model.threads)

    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.engine.request import Request
    from draftwood.runner.attach import attach

    chosen = [method(text) for text in METHODS]
    loaded = model.load()
    target = attach(loaded.model)
    host = ModelHost(target, loaded.tokenizer)
    engines = [Engine(target, each, loaded.tokenizer, host=host) for each in chosen]
    console = Console()
    console.print(f"model: {loaded.name}, {target.info.dtype}, {target.info.device}, greedy")
    for name, text in PROMPTS.items():
        request = Request(
            encode(loaded.tokenizer, text, chat=False), max_new_tokens, eos=loaded.eos
        )
        console.rule(name)
        click.secho(text, dim=True, nl=False)
        _stream(engines[-1], request)
        click.echo("\n")
        console.print(_table(chosen, _measure(engines, request, repeats)))
    console.print("green: drafted and accepted; plain: the target's own tokens")


def _stream(engine: Engine, request: Request) -> None:
    from draftwood.engine.request import Delta, checked

    for event in checked(engine.stream([request])):
        if isinstance(event, Delta):
            show(event)


def _measure(engines: Sequence[Engine], request: Request, repeats: int) -> list[Result]:
    """Run the methods in turn, ``repeats`` times, so that a busy moment slows all of them."""
    rates: list[list[float]] = [[] for _ in engines]
    completions: list[Completion] = []
    for _ in range(repeats):
        completions = [engine.generate([request])[0].checked() for engine in engines]
        for found, completion in zip(rates, completions, strict=True):
            found.append((len(completion.tokens) - 1) / (completion.seconds - completion.ttft))
    return [Result(c, tuple(r)) for c, r in zip(completions, rates, strict=True)]


def _table(methods: Sequence[Method], results: Sequence[Result]) -> Table:
    plain = results[0]
    base = statistics.median(plain.rates)
    loop = repeats(plain.completion.tokens)
    table = Table(
        "method", "budget", "same tokens", "tok/s", "speed-up", "tokens per call", box=None
    )
    for each, result in zip(methods, results, strict=True):
        same = result.completion.tokens == plain.completion.tokens
        rate = statistics.median(result.rates)
        table.add_row(
            each.name,
            str(each.policy.budget),
            "[green]✓[/]" if same else "[red]✗[/]",
            *(
                marked(figure, loop.loops)
                for figure in (
                    f"{rate:.0f}",
                    f"{rate / base:.2f}x",
                    f"{result.completion.tally.mean_acceptance_length:.2f}",
                )
            ),
        )
    if loop.loops:
        table.caption = note(1, 1, loop.share)
    return table
