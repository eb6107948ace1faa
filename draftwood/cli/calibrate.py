"""``draftwood calibrate``: counts how often a model accepts candidates, by their features.

Prompts are decoded with ``auto``, but every candidate is drafted, however unlikely, so that the
policy's choice does not bias the counts. ``auto`` starts from the resulting file; the one in the
package was made in this way, from text that is not used in benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    draft_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    numbers,
    progress,
    prompts_option,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.prompts import Prompt, read, sources
from draftwood.methods import method, spellings
from draftwood.methods.recipe import Method
from draftwood.methods.shipped import check_drafts
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import FREE, Bid, Built, Host, Price, Tuner
from draftwood.sampling.params import SamplingParams

_FLOOR = 0.002
"""Path probability below which no candidates are searched."""


@click.command(cls=Command)
@click.argument("output", type=PATH)
@prompts_option
@limit_option
@click.option(
    "--methods",
    help="Forms of auto to count with.  [default: auto, and auto with each drafter that is given "
    "or comes with the embedded model]",
)
@draft_option
@head_option
@click.option("--temperatures", default="0,0.5,1", show_default=True, help="Sampling temperatures.")
@max_new_tokens_option(least=2)
@truncate_option
@model_options
def calibrate(
    output: Path,
    prompts: str,
    limit: int | None,
    methods: str | None,
    draft: str | None,
    head: str | None,
    temperatures: str,
    max_new_tokens: int,
    truncate: int | None,
    model: ModelOptions,
) -> None:
    """Count how often a model accepts drafted candidates.

    The counts go to OUTPUT, a JSON file. Use it with --method auto --calibration OUTPUT.
    """
    check_writable(output)
    chosen = _chosen(methods, Defaults(draft=draft, head=head), embedded=model.name == "embedded")
    check_drafts(model.name, chosen, trust_remote_code=model.trust_remote_code)
    temperatures_ = numbers("--temperatures", temperatures, float, "write numbers, such as 0,0.5,1")

    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.engine.request import Request
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.runner.attach import attach

    sampled = [SamplingParams(temperature=t) for t in temperatures_]
    members = read(sources(prompts), limit)
    loaded = model.load()
    target = attach(loaded.model)
    host = ModelHost(target, loaded.tokenizer)
    contexts = Contexts(
        loaded.tokenizer, target.info.context_limit, max_new_tokens, truncate=truncate
    )
    contexts.check(members)
    calibration, surveyed = _surveyed(list(chosen.values()))
    runs = list(_runs(surveyed, sampled, members))
    for each, sampling, prompt in progress(runs, "counting"):
        ids = contexts.after(prompt, ()).ids
        request = Request(ids, max_new_tokens, sampling, eos=loaded.eos)
        Engine(target, each, host=host).generate([request])[0].checked()
    calibration.save(output)
    click.echo(f"{output}: {len(runs)} answers counted")


def _chosen(methods: str | None, given: Defaults, *, embedded: bool) -> dict[str, Method]:
    """The methods to count with, by spelling, with the given drafters.

    Raises:
        DraftwoodError: a method or a setting is unknown.
    """
    if methods is None:
        texts = ["auto"]
        texts += ["auto:drafter=model"] if embedded or given.draft else []
        texts += ["auto:drafter=eagle3"] if embedded or given.head else []
    else:
        texts = spellings(methods)
    return {text: method(text, **_underscored(given.of(text))) for text in texts}


def _underscored(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace(".", "__"): value for name, value in settings.items()}


def _runs(
    methods: Sequence[Method], sampled: Sequence[SamplingParams], prompts: Sequence[Prompt]
) -> Iterator[tuple[Method, SamplingParams, Prompt]]:
    for each in methods:
        for sampling in sampled:
            for seed, prompt in enumerate(prompts):
                yield each, replace(sampling, seed=seed), prompt


@dataclass(frozen=True)
class _Surveyed(Auto):
    """``auto`` with a tuner to which nodes cost nothing; all engines share one calibration."""

    taught: Calibration = field(default_factory=Calibration)

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:  # noqa: ARG002
        """A tuner without costs."""
        free = LiveCosts(StepCosts(Curve((1, 2), (1.0, 1.0))))
        return _Surveyor(self.taught, free, self.level)


class _Surveyor(AutoTuner):
    """A tuner to which nodes and levels cost nothing."""

    def floor(self, token_weight: float) -> float:  # noqa: ARG002
        return _FLOOR

    def level_seconds(self, width: int) -> float:  # noqa: ARG002
        return 0.0

    def price(self, bids: Sequence[Bid]) -> Price:  # noqa: ARG002
        self._price, self.recent_price = FREE, 0.0
        return FREE


def _surveyed(methods: Sequence[Method]) -> tuple[Calibration, list[Method]]:
    """A new calibration, and the methods with engines that teach it.

    Raises:
        DraftwoodError: a method is not ``auto``, or the methods differ in their further sources.
    """
    found: list[Method] = []
    taught: Calibration | None = None
    for each in methods:
        policy = each.policy
        if not isinstance(policy, Auto):
            raise DraftwoodError(f"method {each.name!r} learns no acceptance: survey auto")
        taught = taught or Calibration(half_life=math.inf, sources=policy.features)
        if taught.sources != policy.features:
            raise DraftwoodError("the methods differ in their further sources: survey one by one")
        own = {f.name: getattr(policy, f.name) for f in fields(policy)}
        found.append(replace(each, policy=_Surveyed(**own, taught=taught)))
    return taught or Calibration(), found
