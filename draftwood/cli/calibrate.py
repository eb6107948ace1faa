"""``draftwood calibrate``: counts how often a model accepts candidates, by their features.

Prompts are decoded with ``auto``, but every candidate is drafted, however unlikely, so that the
policy's choice does not bias the counts. An answer that repeats itself has the same kind of
candidate hundreds of times, so one answer counts for a few in each bucket at most. ``auto`` starts
from the resulting file; the one in the package was made in this way, from text that is not used in
benchmarks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    chat_option,
    draft_option,
    head_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    not_in_option,
    numbers,
    progress,
    prompts_option,
    refuse_overlapping_prompts,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.prompts import Prompt, read, sources
from draftwood.methods import method, spellings
from draftwood.methods.equip import equipped
from draftwood.methods.recipe import Method
from draftwood.policies.auto.calibration import Calibration, Prior
from draftwood.policies.auto.calibration_file import save
from draftwood.policies.auto.features import SOURCES, Codes, Source
from draftwood.policies.auto.forecast import Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import (
    FREE,
    Bid,
    Built,
    Fingerprint,
    Host,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)
from draftwood.sampling.params import SamplingParams

_FLOOR = 0.002
"""Path probability below which no candidates are searched."""

_MOST = 4.0
"""Candidates that one answer counts for in a bucket, at most."""


@click.command(cls=Command)
@click.argument("output", type=PATH)
@prompts_option
@limit_option
@not_in_option
@click.option(
    "--methods",
    help="Forms of auto to count with.  [default: auto, with the shipped table if there is one, "
    "and auto with each drafter that is given or shipped for the model]",
)
@draft_option
@head_option
@click.option("--temperatures", default="0,0.5,1", show_default=True, help="Sampling temperatures.")
@max_new_tokens_option(least=2)
@chat_option
@truncate_option
@model_options
def calibrate(
    output: Path,
    prompts: str,
    limit: int | None,
    not_in: str | None,
    methods: str | None,
    draft: str | None,
    head: str | None,
    temperatures: str,
    max_new_tokens: int,
    chat: bool | None,
    truncate: int | None,
    model: ModelOptions,
) -> None:
    """Count how often a model accepts drafted candidates.

    The counts go to OUTPUT, a JSON file. Use it with --method auto --calibration OUTPUT.
    """
    check_writable(output)
    chosen = _chosen(methods, Defaults(draft=draft, head=head), embedded=model.name == "embedded")
    temperatures_ = numbers("--temperatures", temperatures, float, "write numbers, such as 0,0.5,1")

    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.engine.request import Request
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.runner.attach import attach

    sampled = [SamplingParams(temperature=t) for t in temperatures_]
    members = read(sources(prompts), limit)
    refuse_overlapping_prompts(not_in, members)
    loaded = model.load(chosen)
    target = attach(loaded.model)
    host = ModelHost(target, loaded.tokenizer)
    contexts = Contexts(
        loaded.tokenizer, target.info.context_limit, max_new_tokens, chat=chat, truncate=truncate
    )
    contexts.check(members)
    weights = target.info.fingerprint
    if methods is None:
        chosen |= _with_shipped_head(weights)
    counted, counting = _counting(list(chosen.values()))
    runs = list(_runs(counting, sampled, members))
    for each, sampling, prompt in progress(runs, "counting"):
        ids = contexts.after(prompt, ()).ids
        request = Request(ids, max_new_tokens, sampling, eos=loaded.eos)
        Engine(target, each, host=host).generate([request])[0].checked()
        counted.end_answer()
    save(output, counted.calibration(), weights)
    click.echo(f"{output}: {len(runs)} answers counted")


def _chosen(methods: str | None, given: Defaults, *, embedded: bool) -> dict[str, Method]:
    """The methods to count with, by spelling, with the given drafters.

    Raises:
        DraftwoodError: a method or a setting is unknown.
    """
    if methods is None:
        texts = ["auto:shipped=table"]
        texts += ["auto:drafter=model"] if embedded or given.draft else []
        texts += ["auto:drafter=eagle3"] if embedded or given.head else []
    else:
        texts = spellings(methods)
    return {text: method(text, **_underscored(given.of(text))) for text in texts}


def _with_shipped_head(weights: Fingerprint | None) -> dict[str, Method]:
    """``auto`` with the head that is shipped for the model, if there is one."""
    found = equipped(method("auto"), weights).method
    return {"auto": found} if any(spec.model for spec in found.drafters.values()) else {}


def _underscored(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace(".", "__"): value for name, value in settings.items()}


def _runs(
    methods: Sequence[Method], sampled: Sequence[SamplingParams], prompts: Sequence[Prompt]
) -> Iterator[tuple[Method, SamplingParams, Prompt]]:
    for each in methods:
        for sampling in sampled:
            for seed, prompt in enumerate(prompts):
                yield each, replace(sampling, seed=seed), prompt


class _Counted:
    """What was counted.

    Args:
        sources: in the order of a candidate's codes.

    Attributes:
        all: counts of all answers; the candidates of the next one are predicted by them.
        answer: counts of the answer that is decoded.
    """

    def __init__(self, sources: tuple[Source, ...] = SOURCES) -> None:
        self.all = Calibration(half_life=math.inf, sources=sources)
        self.answer = Calibration(half_life=math.inf)
        self._ended: list[Mapping[str, Prior]] = []

    def end_answer(self) -> None:
        """Count from here on for another answer."""
        self._ended.append(self.answer.totals())
        self.answer = Calibration(half_life=math.inf)

    def calibration(self) -> Calibration:
        """The calibration to begin with, in which no ended answer outvotes the others."""
        counts = capped_sum(self._ended, _MOST)
        return Calibration(counts, sources=self.all.sources, learnt=self.all.learnt())


def capped_sum(answers: Iterable[Mapping[str, Prior]], most: float) -> dict[str, Prior]:
    """The sum of counts by band and bucket, each answer scaled to ``most`` offered at most."""
    found: dict[str, dict[Codes, tuple[float, float]]] = defaultdict(dict)
    for answer in answers:
        for band, counts in answer.items():
            for codes, (offered, taken) in counts.items():
                scale = most / max(offered, most)
                before = found[band].get(codes, (0.0, 0.0))
                found[band][codes] = before[0] + scale * offered, before[1] + scale * taken
    return dict(found)


@dataclass(frozen=True)
class _CountingAuto(Auto):
    """``auto`` that drafts every candidate; all engines count for one calibration."""

    counted: _Counted = field(default_factory=_Counted)

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:  # noqa: ARG002
        return _CountingTuner(self.counted)


class _CountingTuner(Tuner):
    """Counts the accepted candidates; neither nodes nor draft forwards cost anything."""

    def __init__(self, counted: _Counted) -> None:
        self._counted = counted
        self._loads: Sequence[RequestLoad] = ()

    def begin(self, loads: Sequence[RequestLoad], *, queued: bool) -> list[Forecast]:  # noqa: ARG002
        self._loads, known = loads, self._counted.all
        return [
            Forecast(
                known.at(load.temperature).acceptance,
                floor=_FLOOR,
                price=0.0,
                sources=known.sources,
            )
            for load in loads
        ]

    def price(self, bids: Sequence[Bid]) -> Price:  # noqa: ARG002
        return FREE

    def observe(self, report: StepReport) -> list[Prediction | None]:
        for bid, outcome, load in zip(report.bids, report.outcomes, self._loads, strict=True):
            if bid is not None:
                codes, labelled = bid.report.labelled(outcome.committed)
                for each in (self._counted.all, self._counted.answer):
                    each.at(load.temperature).observe(codes, labelled.taken)
        return [None] * len(report.bids)


def _counting(methods: Sequence[Method]) -> tuple[_Counted, list[Method]]:
    """Counts that begin empty, and the methods with engines that count there.

    Raises:
        DraftwoodError: a method is not ``auto``, or the methods differ in their further sources.
    """
    policies: list[Auto] = []
    sources = set[tuple[Source, ...]]()
    for each in methods:
        if not isinstance(each.policy, Auto):
            raise DraftwoodError(f"method {each.name!r} uses no calibration: count with auto")
        policies.append(each.policy)
        sources.add(each.policy.described(each.drafters))
    if len(sources) > 1:
        raise DraftwoodError(
            "the methods differ in their further sources: count with one at a time"
        )
    counted = _Counted(sources.pop())
    found = [
        replace(each, policy=_CountingAuto(**_settings(policy), counted=counted))
        for each, policy in zip(methods, policies, strict=True)
    ]
    return counted, found


def _settings(policy: Auto) -> dict[str, Any]:
    return {each.name: getattr(policy, each.name) for each in fields(policy)}
