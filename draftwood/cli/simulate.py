"""``draftwood simulate``: runs methods on synthetic text with synthetic drafters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import click

from draftwood.cli._options import numbers, progress
from draftwood.cli._replay_flags import Output, output_options
from draftwood.cli._settings_flags import settings_flags
from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.lab.replay.simulated.language import Language
from draftwood.lab.replay.simulated.rates import CopyRates, RankRates
from draftwood.methods import method, spellings

if TYPE_CHECKING:
    from draftwood.costs.curve import StepCosts
    from draftwood.lab.replay.decoding import PromptRun
    from draftwood.lab.replay.figures import Figures
    from draftwood.lab.replay.substitute import ReplayMethod

_RATES = "0.6,0.14,0.07,0.04,0.02"
_MATCH = "0.3,4"

_T = TypeVar("_T")


@click.command()
@click.option(
    "--methods",
    default="ar,pld,sd,goose,talon,auto",
    show_default=True,
    help="Methods, with settings after colons (goose:budget=16).",
)
@click.option(
    "--rates",
    multiple=True,
    default=[_RATES],
    show_default=True,
    metavar="[SOURCE=]A1,A2,...",
    help="Acceptance rate of a drafter's candidates by rank. Repeatable.",
)
@settings_flags("ranked", RankRates())
@click.option(
    "--match",
    multiple=True,
    default=[_MATCH],
    show_default=True,
    metavar="[SOURCE=]SHARE,RUN",
    help="Share of steps with a copied chain, and its mean number of correct tokens. Repeatable.",
)
@settings_flags("copied", CopyRates())
@click.option("--real", default="", metavar="SOURCE,...", help="Sources that keep their drafters.")
@settings_flags("language", Language())
@click.option(
    "--sequences", type=click.IntRange(1), default=8, show_default=True, help="Texts to decode."
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    help="Tokens per prompt.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(2),
    default=512,
    show_default=True,
    help="Tokens to generate per text.",
)
@output_options
def simulate(
    methods: str,
    rates: tuple[str, ...],
    ranked: RankRates,
    match: tuple[str, ...],
    copied: CopyRates,
    real: str,
    language: Language,
    sequences: int,
    prompt_tokens: int,
    max_new_tokens: int,
    output: Output,
) -> None:
    """Run methods on synthetic text with synthetic drafters.

    Any method with deterministic trees can be run. It has its own policy and budget; its drafters
    have the given acceptance rates.
    """
    names = spellings(methods)
    output.check(names)

    def rank_rates(text: str) -> RankRates:
        return replace(ranked, ranks=_floats("--rates", text))

    def copy_rates(text: str) -> CopyRates:
        found = _floats("--match", text)
        if len(found) != 2:
            raise DraftwoodError(f"--match {text!r}: write a share and a length, such as {_MATCH}")
        return replace(copied, match=found[0], run=found[1])

    from draftwood.lab.replay.simulated.run import Simulation
    from draftwood.lab.replay.simulated.run import simulate as run
    from draftwood.lab.replay.simulated.target import SimulatedTarget
    from draftwood.lab.replay.substitute import replay_method

    ranks = _by_source(rates, _RATES, rank_rates)
    copies = _by_source(match, _MATCH, copy_rates)
    own = frozenset(name for name in real.split(",") if name)
    simulation = Simulation(language, ranks, copies, own)
    info = SimulatedTarget(language).info
    chosen = {name: replay_method(method(name), info) for name in names}
    sources = sorted({source for each in chosen.values() for source in each.method.policy.sources})
    for flag, named in (("--rates", ranks), ("--match", copies), ("--real", own)):
        _check_sources(flag, filter(None, named), sources)
    costs = output.costs(chosen.values())

    def simulated(name: str, one: ReplayMethod) -> Figures:
        def runs(title: str, at: StepCosts) -> list[PromptRun]:
            return [
                run(
                    one,
                    simulation,
                    sequence=number,
                    prompt=prompt_tokens,
                    tokens=max_new_tokens,
                    costs=at,
                )
                for number in progress(range(sequences), title)
            ]

        return output.figures(name, one.method, costs, runs)

    found = [simulated(name, one) for name, one in chosen.items()]
    facts = {"spread": ranked.spread, "match": list(match), "seed": language.seed}
    output.write(found, {"rates": list(rates), **facts})


def _by_source(given: Sequence[str], default: str, parse: Callable[[str], _T]) -> dict[str, _T]:
    """Parse ``SOURCE=VALUE`` by source; a bare value is for all other sources."""
    pairs = [text.rpartition("=") for text in given]
    return {"": parse(default)} | {source: parse(value) for source, _, value in pairs}


def _check_sources(flag: str, named: Iterable[str], known: Sequence[str]) -> None:
    """Refuse sources that no method drafts from: what is said of them would change nothing."""
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known) or f"there is {', '.join(known) or 'none'}"
            raise DraftwoodError(f"{flag}: no method here has the source {name!r}: {hint}")


def _floats(flag: str, text: str) -> tuple[float, ...]:
    return numbers(flag, text, float, "write numbers, such as 0.6,0.2")
