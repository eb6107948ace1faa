"""``draftwood calibrate``: counts how often a model accepts candidates, by their features.

Prompts are decoded with ``auto``, but every candidate is drafted, however unlikely, so that the
policy's choice does not bias the counts. An answer that repeats itself has the same kind of
candidate hundreds of times, so one answer counts for a few in each bucket at most. ``auto`` starts
from the resulting file; the one in the package was made in this way, from text that is not used in
benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
    setting_values,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.files import check_output
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.prompts import Prompt, files, read, sources
from draftwood.lab.counting import counting
from draftwood.methods import method, spellings
from draftwood.methods.equip import equipped
from draftwood.methods.recipe import Method
from draftwood.policies.auto.calibration_file import save
from draftwood.protocols import Fingerprint
from draftwood.sampling.params import SamplingParams


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

    The counts go to OUTPUT, a JSON file. Use it with --method auto --calibration OUTPUT. An
    interrupted run writes nothing: its counts would lack methods and temperatures.
    """
    given = setting_values((methods or "").split(","))
    check_output(output, [*files(prompts), *files(not_in), *given])
    chosen = _chosen(methods, Defaults(draft=draft, head=head), embedded=model.name == "embedded")
    temperatures_ = numbers("--temperatures", temperatures, float, "write numbers, such as 0,0.5,1")

    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.engine.request import Request
    from draftwood.lab.bench.contexts import Contexts
    from draftwood.runner.attach import attach

    sampled = [SamplingParams(temperature=t) for t in temperatures_]
    counts, forms = counting(list(chosen.values()))  # before the model is loaded
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
        counts, forms = counting(list(chosen.values()))
    runs = list(_runs(forms, sampled, members))
    for each, sampling, prompt in progress(runs, "counting"):
        ids = contexts.after(prompt, ()).ids
        request = Request(ids, max_new_tokens, sampling, eos=loaded.eos)
        Engine(target, each, host=host).generate([request])[0].checked()
        counts.end_answer()
    save(output, counts.calibration(), weights)
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
