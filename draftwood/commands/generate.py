"""``draftwood generate``: one prompt, streamed, accepted drafted tokens coloured."""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.bench.trace import fields as step_fields
from draftwood.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.options import method_of, model_options, sampling_of, sampling_options
from draftwood.recipes import Method
from draftwood.requests import Completion, Delta, Finished, Request, Stepped
from draftwood.stats import StepStats
from draftwood.target.attach import attach


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog="Further --setting value flags are the method's own: see 'draftwood methods NAME'.",
)
@click.argument("prompt", required=False)
@click.option(
    "--file", "path", type=click.Path(path_type=Path), help="Read the prompt from a file."
)
@click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template.")
@click.option("--method", "name", default="auto", show_default=True)
@click.option("--budget", type=int, help="Most nodes drafted a step, root excluded.")
@click.option("--max-new-tokens", type=int, default=128, show_default=True)
@click.option("--stop", multiple=True, help="String that ends the text. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Say of every step what was drafted, from where, and what it was expected to bring.",
)
@model_options
@sampling_options
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    prompt: str | None,
    path: Path | None,
    chat: bool,
    name: str,
    budget: int | None,
    max_new_tokens: int,
    stop: tuple[str, ...],
    as_json: bool,
    explained: bool,
    model: str,
    dtype: str,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
    **sampling: Any,
) -> None:
    """Continue PROMPT (or --file, or standard input) and stream the text.

    Tokens that were drafted and accepted are green; the target's own are plain.
    """
    chosen = method_of(name, budget, ctx.args)
    params = sampling_of(**sampling)
    text = _read(prompt, path)
    if threads:
        torch.set_num_threads(threads)
    loaded = models.load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    request = Request(
        prompt=encode(loaded.tokenizer, text, chat=chat),
        max_new_tokens=max_new_tokens,
        sampling=params,
        eos=loaded.eos,
        stop=stop,
    )
    engine = Engine(attach(loaded.model), chosen, loaded.tokenizer)
    steps: list[StepStats] = []
    completion = _run(engine, request, steps, quiet=as_json)
    if as_json:
        explanation = {"explain": [step_fields(step) for step in steps]} if explained else {}
        click.echo(json.dumps(summary(chosen, completion) | explanation))
        return
    click.echo()
    if explained:
        for line in explanations(steps):
            click.echo(line, err=True)
    click.secho(_line(chosen, completion), err=True, dim=True)


def encode(tokenizer: PreTrainedTokenizerBase, text: str, *, chat: bool) -> list[int]:
    """Token ids of a prompt, as one user turn of the chat template if ``chat``.

    Raises:
        DraftwoodError: the tokenizer has no chat template, or the prompt is empty.
    """
    if not text:
        raise DraftwoodError("the prompt is empty: give some text")
    if chat:
        if not tokenizer.chat_template:
            raise DraftwoodError("this model has no chat template: leave --chat out")
        text = str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
        )
    # A chat template writes its special tokens itself.
    return list(tokenizer.encode(text, add_special_tokens=not chat))


def summary(method: Method, completion: Completion) -> dict[str, object]:
    """The object that ``--json`` prints."""
    tally = completion.tally
    decoding = completion.seconds - completion.ttft
    return {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "method": method.name,
        "finish_reason": completion.reason,
        "prompt_tokens": completion.prompt_tokens,
        "steps": tally.steps,
        "target_calls": tally.steps,
        "mean_acceptance_length": _number(tally.mean_acceptance_length),
        "acceptance_rate": _number(tally.acceptance_rate),
        "acceptance_by_depth": tally.acceptance_by_depth(),
        "acceptance_by_source": {s: tally.acceptance_of(s) for s in tally.drafted_by_source},
        "routes": dict(tally.routes),
        "tokens_per_second": _number((len(completion.tokens) - 1) / decoding if decoding else 0.0),
        "ttft_ms": _number(completion.ttft * 1e3),
        "tpot_ms": _number(completion.tpot * 1e3),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)  # JSON has no NaN


def _line(method: Method, completion: Completion) -> str:
    facts = summary(method, completion)
    return (
        f"[{method.name}: {len(completion.tokens)} tokens, {facts['steps']} target calls, "
        f"{facts['mean_acceptance_length']} tokens a call, "
        f"{facts['tokens_per_second']} tok/s, {completion.reason}]"
    )


def explanations(steps: Sequence[StepStats]) -> Iterator[str]:
    """A line a step: its size and sources, and the tokens expected and committed."""
    yield "step  nodes  depth  expected  committed  ms     from"
    for number, step in enumerate(steps):
        drafted, taken = (
            Counter(step.tree.sources[1:]),
            Counter(step.tree.sources[node] for node in step.path),
        )
        sources = ", ".join(f"{name} {taken[name]}/{count}" for name, count in drafted.items())
        expected = "-" if step.expected is None else f"{step.expected:.2f}"
        yield (
            f"{number:4}  {step.tree.drafted:5}  {step.tree.depth:5}  {expected:>8}  "
            f"{step.committed:9}  {step.times.total * 1e3:5.1f}  {sources or step.tree.route}"
        )


def _run(engine: Engine, request: Request, steps: list[StepStats], *, quiet: bool) -> Completion:
    """The answer; its steps are added to ``steps``."""
    number = engine.add(request)
    try:
        while True:
            for event in engine.step():
                if isinstance(event, Delta) and not quiet:
                    show(event)
                if isinstance(event, Stepped):
                    steps.append(event.stats)
                if isinstance(event, Finished):
                    return event.completion.checked()
    except KeyboardInterrupt:
        cancelled = engine.cancel(number)
        if cancelled is None:
            raise
        return cancelled.completion


def show(delta: Delta) -> None:
    """Print new text, accepted drafted tokens in green."""
    for piece, accepted in zip(delta.pieces, delta.accepted, strict=True):
        click.secho(piece, fg="green" if accepted else None, nl=False)


def _read(prompt: str | None, path: Path | None) -> str:
    if prompt is not None and path is not None:
        raise DraftwoodError("give the prompt as text or as --file, not both")
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DraftwoodError(f"cannot read the prompt from {path}: {error}") from error
    if prompt is not None:
        return prompt
    if sys.stdin.isatty():
        raise DraftwoodError("no prompt: give it as text, as --file, or on standard input")
    return sys.stdin.read()
