"""``draftwood doctor``: says what works on this machine, how fast, and what would help."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from draftwood.cli._demo_prompts import prompts_for
from draftwood.cli._options import (
    ModelOptions,
    draft_option,
    head_option,
    max_new_tokens_option,
    optional_model_argument,
)
from draftwood.cli._prompt import encode
from draftwood.cli._sections import Command
from draftwood.errors import DraftwoodError
from draftwood.files import encode as to_json
from draftwood.methods import method
from draftwood.methods.recipe import Method

if TYPE_CHECKING:
    from draftwood.engine.request import Request
    from draftwood.lab.doctor.finding import Finding
    from draftwood.models import Loaded
    from draftwood.runner.runner import Runner

_MARKS = {"ok": "ok", "note": "note", "warning": "WARN", "failed": "FAIL"}
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "red"}
_WIDTH, _INDENT = 100, 20
"""Columns of a line, and of what stands before a finding's text."""

_EXAMPLES = """\b
Examples:
  draftwood doctor
  draftwood doctor smollm2
  draftwood doctor BIG --draft SMALL --dtype bfloat16
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@draft_option
@head_option
@max_new_tokens_option(least=2, default=96)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@optional_model_argument
def doctor(
    draft: str | None,
    head: str | None,
    max_new_tokens: int,
    as_json: bool,
    model: ModelOptions,
) -> None:
    """Say what works on this machine, how fast, and what would help.

    Without MODEL: versions, device, threads, other load and memory. With MODEL also whether it
    fits and can branch, what trees cost, and how much faster "auto" answers a few prompts than
    plain decoding. Below a finding stands what would help, with the command that does or shows it.
    Exit code 0: the model can be used, or none was named; 1: it cannot.
    """
    given = {flag: value for flag, value in (("draft", draft), ("head", head)) if value}
    if given and not model.name:
        raise DraftwoodError(f"--{next(iter(given))} is for a MODEL: name it before the options")
    chosen = method("auto", **given)
    found: list[Finding] = []
    for finding in _findings(model, chosen, max_new_tokens):
        found.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        click.echo(json.dumps({"findings": to_json(found)}))
    if any(finding.state == "failed" for finding in found):
        raise click.exceptions.Exit(1)


def _findings(model: ModelOptions, chosen: Method, max_new_tokens: int) -> Iterator[Finding]:
    """All findings in order, each as soon as it is known; none after one that failed."""
    from draftwood.lab.doctor.finding import in_commands
    from draftwood.lab.doctor.machine import machine_findings
    from draftwood.lab.free_memory import free_memory
    from draftwood.models import device_named

    device = device_named(model.device)
    yield from machine_findings(device, model.threads, in_commands(model.name, model.dtype))
    if not model.name:
        return

    from draftwood.lab.doctor.finding import Finding
    from draftwood.lab.doctor.model import attached, room_finding
    from draftwood.lab.doctor.weights import fit_finding, weights_of

    weights = weights_of(model.name, model.dtype, device, trust_remote_code=model.trust_remote_code)
    if weights is not None:
        fits = fit_finding(weights, free_memory(device), model.name, device)
        yield fits
        if fits.state == "failed":
            return
    try:
        loaded = model.load({"auto": chosen})
    except DraftwoodError as error:
        yield Finding("model", str(error), "failed")
        return
    # Before weights are packed, which reading them would undo.
    parameters = sum(each.numel() for each in loaded.model.parameters())
    runner, trees = attached(loaded)
    yield trees
    if runner is None:
        return
    yield room_finding(runner, free_memory(device), chosen.policy.budget + 1)
    yield from _speeds(loaded, runner, chosen, max_new_tokens, parameters, model.dtype)


def _speeds(
    loaded: Loaded,
    runner: Runner,
    chosen: Method,
    max_new_tokens: int,
    parameters: int,
    dtype: str,
) -> Iterator[Finding]:
    import torch

    from draftwood.costs.recall import recall_or_measure
    from draftwood.engine.engine import Engine
    from draftwood.engine.host import ModelHost
    from draftwood.lab.doctor.advice import advice_finding
    from draftwood.lab.doctor.finding import in_commands
    from draftwood.lab.doctor.model import drafts_finding
    from draftwood.lab.doctor.speed import costs_finding, speed_finding, timed, tokens_finding

    name = in_commands(loaded.name, dtype)
    host = ModelHost(runner, loaded.tokenizer)
    engine = Engine(runner, chosen, loaded.tokenizer, host=host)
    yield drafts_finding(engine, name)
    yield costs_finding(recall_or_measure(host, {}).now(1), name)
    plain = Engine(runner, method("ar"), loaded.tokenizer)
    found = timed(plain, engine, _requests(loaded, max_new_tokens, runner.info.context_limit))
    yield speed_finding(found, chosen.name, name)
    yield tokens_finding(found, name, exact=runner.info.dtype == torch.float32)
    yield advice_finding(runner.info, parameters, loaded.name, dtype)


def _requests(loaded: Loaded, max_new_tokens: int, context: int) -> list[Request]:
    """The prompts of the demo, as chats if the model has a chat template.

    For a short context, only the ends of the prompts.
    """
    from draftwood.engine.request import Request

    shown = prompts_for(loaded)
    texts = shown.prompts.values()
    prompts = [encode(loaded.tokenizer, text, chat=shown.chat) for text in texts]
    new = min(max_new_tokens, max(2, context // 2))
    return [Request(prompt[-max(1, context - new) :], new, eos=loaded.eos) for prompt in prompts]


def _show(finding: Finding) -> None:
    mark = click.style(f"{_MARKS[finding.state]:<5}", fg=_COLOURS[finding.state])
    first, *rest = _wrapped(finding.text)
    click.echo(f"{mark}{finding.name:<{_INDENT - 5}}{first}")
    for line in rest:
        click.echo(f"{'':{_INDENT}}{line}")
    for each in finding.advice:
        for line in _wrapped(f"- {each.text}" + (":" if each.command else "")):
            click.secho(f"{'':{_INDENT}}{line}", dim=True)
        if each.command:
            click.echo(f"{'':{_INDENT + 4}}{each.command}")


def _wrapped(text: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH - _INDENT, break_long_words=False) or [""]
