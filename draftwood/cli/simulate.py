"""``draftwood simulate``: what methods would come to with drafters as good as one says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import track

from draftwood.cli._options import numbers
from draftwood.cli._replay_flags import Pricing, loads_of, pricing_options, write_figures
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.replay.pricing import assumed_costs
from draftwood.lab.replay.simulated.language import Language
from draftwood.lab.replay.simulated.rates import Copies, Rates
from draftwood.methods import method, spellings

_RATES = "0.6,0.14,0.07,0.04,0.02"
_MATCH = "0.3,4"

_T = TypeVar("_T")


@click.command()
@click.option(
    "--methods",
    default="ar,pld,sd,goose,talon,auto",
    show_default=True,
    help="Comma-separated, settings behind colons (goose:budget=16).",
)
@click.option(
    "--rates",
    multiple=True,
    default=[_RATES],
    show_default=True,
    metavar="[SOURCE=]A1,A2,...",
    help="Chance that the target's token has rank 1, 2, ... with a drafter, or with all.",
)
@click.option(
    "--spread",
    type=float,
    default=0.5,
    show_default=True,
    help="How much confidence varies, from 0 (not at all) to 1; it is calibrated.",
)
@click.option(
    "--match",
    multiple=True,
    default=[_MATCH],
    show_default=True,
    metavar="[SOURCE=]SHARE,RUN",
    help="Share of steps with a copied chain, and how many of its tokens are right on average.",
)
@click.option("--copied", type=int, default=20, show_default=True, help="Tokens of a chain.")
@click.option("--match-length", type=int, default=8, show_default=True, help="Of every match.")
@click.option("--real", default="", metavar="SOURCE,...", help="Keep these drafters as they are.")
@click.option("--vocabulary", type=int, default=32000, show_default=True, help="Tokens.")
@click.option("--entropy", type=float, default=2.0, show_default=True, help="Bits a token.")
@click.option(
    "--order",
    type=int,
    default=0,
    show_default=True,
    help="Last tokens that decide which ones are likely; 0: the whole text, so that none recurs.",
)
@click.option(
    "--sequences", type=click.IntRange(1), default=8, show_default=True, help="Texts to decode."
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    help="Tokens of every prompt.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(2),
    default=512,
    show_default=True,
    help="Tokens to generate in every text.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the language.")
@pricing_options
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures here.")
def simulate(
    methods: str,
    rates: tuple[str, ...],
    spread: float,
    match: tuple[str, ...],
    copied: int,
    match_length: int,
    real: str,
    vocabulary: int,
    entropy: float,
    order: int,
    sequences: int,
    prompt_tokens: int,
    max_new_tokens: int,
    seed: int,
    costs_file: Path | None,
    gpu: str | None,
    shape: str | None,
    draft_shape: str | None,
    batch: str,
    context: str,
    output: Path | None,
) -> None:
    """Play METHODS over a made-up language with made-up drafters and say what they come to.

    Any deterministic method, with its policy and budget as they are; only what drafters and target
    say is made up.
    """
    names = spellings(methods)
    if output is not None:
        check_writable(output)

    def ranked(text: str) -> Rates:
        return Rates(_floats("--rates", text), spread)

    def copying(text: str) -> Copies:
        numbers = _floats("--match", text)
        if len(numbers) != 2:
            raise DraftwoodError(f"--match {text!r}: write a share and a length, such as {_MATCH}")
        return Copies(*numbers, length=copied, match_length=match_length)

    from draftwood.cli._replay_flags import show
    from draftwood.lab.replay.figures import figures
    from draftwood.lab.replay.simulated.run import World
    from draftwood.lab.replay.simulated.run import simulate as play
    from draftwood.lab.replay.simulated.target import MadeUpTarget
    from draftwood.lab.replay.substitute import part_of

    world = World(
        Language(vocabulary, entropy, order, seed),
        _by_source(rates, _RATES, ranked),
        _by_source(match, _MATCH, copying),
        frozenset(name for name in real.split(",") if name),
    )
    info = MadeUpTarget(world.language).info
    chosen = {name: method(name) for name in names}
    parts = [part_of(found, info) for found in chosen.values()]
    pricing = Pricing(costs_file, gpu, shape, draft_shape)
    costs = pricing.costs({source for part in parts for source in part.modelled})
    loads = loads_of(batch, context) if costs is not None else []
    console = Console(stderr=True)
    found = []
    for name, one in chosen.items():
        played = [
            play(
                one,
                world,
                sequence=number,
                prompt=prompt_tokens,
                tokens=max_new_tokens,
                costs=costs or assumed_costs(),
            )
            for number in track(range(sequences), name, console=console, transient=True)
        ]
        found.append(figures(name, played, [], loads, costs))
    show(found, loads)
    if output is not None:
        facts: dict[str, object] = {
            "rates": list(rates),
            "spread": spread,
            "match": list(match),
            "seed": seed,
        }
        write_figures(output, found, facts)


def _by_source(given: Sequence[str], usual: str, made: Callable[[str], _T]) -> dict[str, _T]:
    """Made of ``SOURCE=VALUE`` by source, and of a bare value for all other sources."""
    pairs = [text.rpartition("=") for text in given]
    return {"": made(usual)} | {source: made(value) for source, _, value in pairs}


def _floats(flag: str, text: str) -> tuple[float, ...]:
    return numbers(flag, text, float, "write numbers, such as 0.6,0.2")
