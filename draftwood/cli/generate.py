"""``draftwood generate``: continues one prompt and streams the text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

import draftwood
from draftwood.cli._grammar import grammar_options
from draftwood.cli._method_flags import MethodCommand, method_of, method_option, method_options
from draftwood.cli._options import (
    ModelOptions,
    max_new_tokens_option,
    model_options,
    sampling_options,
)
from draftwood.cli._prompt import encode, prompt_options, read_prompt
from draftwood.errors import DraftwoodError
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.cli._compare import Comparison
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Completion, Delta, Request
    from draftwood.engine.stats import StepStats, Tally
    from draftwood.grammars.grammar import Grammar
    from draftwood.methods.recipe import Method
    from draftwood.models import Loaded

_WARM_UP = 8
"""Tokens that are decoded before a comparison."""

_EXAMPLES = """\b
Examples:
  draftwood generate "def quicksort("
  draftwood generate "Tell me about foxes." --model smollm2 --chat --compare
  draftwood generate "Once upon a time" --model PATH_OR_HUB_ID --temperature 0.8
  draftwood generate "def add(" --model BIG --draft SMALL
  draftwood generate "A record as JSON: " --json-schema record.json
  draftwood generate --file prompt.txt --method goose --budget 16 --json
"""


@click.command(cls=MethodCommand, epilog=_EXAMPLES)
@prompt_options
@max_new_tokens_option()
@click.option("--stop", multiple=True, help="Stop string. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
@click.option(
    "--compare",
    "compared",
    is_flag=True,
    help="Decode once more without drafts, and print both speeds and whether the tokens agree.",
)
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Print a line per step: drafted nodes by source, expected and committed tokens.",
)
@model_options
@method_option
@method_options
@sampling_options
@grammar_options
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    prompt: str | None,
    path: Path | None,
    chat: bool,
    name: str,
    max_new_tokens: int,
    stop: tuple[str, ...],
    as_json: bool,
    compared: bool,
    explained: bool,
    model: ModelOptions,
    sampling: SamplingParams,
    grammar: Grammar | None,
) -> int | None:
    """Continue PROMPT and stream the text.

    Without PROMPT and --file, the prompt is read from standard input. Accepted drafted tokens are
    green, the model's own are plain.
    """
    chosen = method_of(ctx, name)
    text = read_prompt(prompt, path)
    if "" in stop:
        raise DraftwoodError("a stop string must not be empty: leave it out")

    from draftwood import models
    from draftwood.engine.engine import Engine
    from draftwood.engine.request import Request
    from draftwood.lab.bench.trace import fields as step_fields
    from draftwood.runner.attach import attach

    if sampling.logit_bias or sampling.banned_tokens:
        sampling.validate(
            models.vocabulary_size(model.name, trust_remote_code=model.trust_remote_code)
        )
    loaded = model.load({name: chosen})
    request = Request(
        prompt=encode(loaded.tokenizer, text, chat=chat),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        eos=loaded.eos,
        stop=stop,
        grammar=grammar,
    )
    engine = Engine(attach(loaded.model), chosen, loaded.tokenizer)
    if engine.note:
        click.secho(engine.note, err=True, dim=True)
    if compared:  # what a first call measures and loads is no part of the comparison
        engine.generate([replace(request, max_new_tokens=_WARM_UP, namespace="warm-up")])
    steps: list[StepStats] = []
    completion = _run(engine, request, steps, quiet=as_json)
    comparison = _compared(engine, loaded, request, completion) if compared else None
    if as_json:
        further: dict[str, object] = {}
        if explained:
            further["explain"] = [step_fields(step) for step in steps]
        if comparison is not None:
            further["compare"] = comparison.document()
        click.echo(json.dumps(summary(chosen, completion) | further))
    else:
        click.echo()
        if explained:
            for line in explanations(steps):
                click.echo(line, err=True)
        for line in (_line(chosen, completion), *(comparison.lines() if comparison else ())):
            click.secho(line, err=True, dim=True)
    completion.checked()
    return 130 if completion.reason == "cancelled" else None


def summary(method: Method, completion: Completion) -> dict[str, object]:
    """Results of a completion, for ``--json``."""
    tally, error = completion.tally, completion.error
    return {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "method": method.name,
        "finish_reason": completion.reason,
        **({"error": error.reason} if error is not None else {}),
        "prompt_tokens": completion.prompt_tokens,
        "steps": tally.steps,
        "target_calls": tally.steps,
        "mean_acceptance_length": _number(tally.mean_acceptance_length),
        "acceptance_rate": _number(tally.acceptance_rate),
        "acceptance_by_depth": tally.acceptance_by_depth(),
        "acceptance_by_source": {s: tally.acceptance_of(s) for s in tally.drafted_by_source},
        "routes": dict(tally.routes),
        "tokens_per_second": _number(_rate(completion)),
        "ttft_ms": _number(completion.ttft * 1e3),
        "tpot_ms": _number(completion.tpot * 1e3),
    }


def _rate(completion: Completion) -> float:
    """Tokens per second after the first token."""
    decoding = completion.seconds - completion.ttft
    return (len(completion.tokens) - 1) / decoding if decoding else 0.0


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)  # JSON has no NaN


def mean_length(tally: Tally) -> str:
    """Tokens per call, to be shown; ``-`` without calls."""
    length = tally.mean_acceptance_length
    return "-" if math.isnan(length) else f"{length:.2f}"


def _line(method: Method, completion: Completion) -> str:
    tally = completion.tally
    return (
        f"[{method.name}: {len(completion.tokens)} tokens, {tally.steps} target "
        f"call{'' if tally.steps == 1 else 's'}, "
        f"{mean_length(tally)} tokens per call, "
        f"{_rate(completion):.2f} tok/s, {completion.reason}]"
    )


def explanations(steps: Sequence[StepStats]) -> Iterator[str]:
    """A table with a line per step: size, expected and committed tokens, sources."""
    yield "step  nodes  depth  expected  committed  ms     accepted/drafted by source"
    for number, step in enumerate(steps):
        drafted = Counter(step.tree.sources[1:])
        accepted = Counter(step.tree.sources[node] for node in step.path)
        sources = ", ".join(f"{name} {accepted[name]}/{count}" for name, count in drafted.items())
        expected = "-" if step.expected is None else f"{step.expected:.2f}"
        yield (
            f"{number:4}  {step.tree.drafted:5}  {step.tree.depth:5}  {expected:>8}  "
            f"{step.committed:9}  {step.times.total * 1e3:5.1f}  {sources or step.tree.route}"
        )


def _run(engine: Engine, request: Request, steps: list[StepStats], *, quiet: bool) -> Completion:
    """Decode the request, stream its text and append its steps to ``steps``."""
    from draftwood.engine.request import Delta, Finished, Stepped

    number = engine.add(request)
    shown = False
    try:
        while True:
            for event in engine.step():
                if isinstance(event, Delta) and not quiet:
                    show(event)
                    shown = True
                if isinstance(event, Stepped):
                    steps.append(event.stats)
                if isinstance(event, Finished):
                    return event.completion
    except KeyboardInterrupt:
        cancelled = engine.cancel(number)
        if cancelled is None:
            raise
        return cancelled.completion
    except Exception:
        if shown:
            click.echo()  # the error goes on a line of its own
        raise


def _compared(
    engine: Engine, loaded: Loaded, request: Request, completion: Completion
) -> Comparison | None:
    """The request by plain decoding as well; None if the method did not end it."""
    from draftwood.cli._compare import Comparison
    from draftwood.engine.engine import Engine
    from draftwood.lab.bench.margins import margin
    from draftwood.methods import method

    if completion.reason in ("cancelled", "error"):
        return None
    plain = Engine(engine.target, method("ar"), loaded.tokenizer)
    exact = engine.method.same_tokens(request.sampling.temperature)
    found = Comparison(completion, plain.generate([request])[0].checked(), exact)
    if not exact or found.differing is None or request.grammar is not None:
        return found
    at = found.first_difference or 0
    draftwood.detach(loaded.model)  # the margin is the untouched model's
    before = [*request.ids, *found.plain.tokens[:at]]
    gap = margin(loaded, before, found.differing, request.sampling, generated=at)
    return replace(found, margin=gap)


def show(delta: Delta) -> None:
    """Print new text, with accepted drafted tokens in green."""
    for piece, accepted in zip(delta.pieces, delta.accepted, strict=True):
        click.secho(piece, fg="green" if accepted else None, nl=False)
