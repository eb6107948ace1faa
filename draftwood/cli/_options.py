"""Command-line options that several subcommands share, and how they become library objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from draftwood.cli._sections import Option
from draftwood.errors import DraftwoodError
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.models import Loaded

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)

THREADS = click.IntRange(1, 4 * (os.cpu_count() or 1))
"""Threads a command may be given: more than a few for each core only make it slower."""


def _stack(decorators: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    return lambda function: reduce(lambda f, d: d(f), reversed(decorators), function)


def model_options(function: F) -> F:
    """``--model``, ``--dtype``, ``--device``, ``--threads``, ``--trust-remote-code``."""
    option = partial(click.option, cls=Option, section="Model")
    return _stack(
        [
            option(
                "--model",
                default="embedded",
                show_default=True,
                help="A directory or a hub id; 'embedded': the small model in the package.",
            ),
            option(
                "--dtype",
                type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
                default="auto",
                show_default=True,
                help="Number format of weights and activations; auto is the checkpoint's.",
            ),
            option(
                "--device",
                default="auto",
                show_default=True,
                help="A torch device such as cpu or cuda:0; auto is CUDA where there is one.",
            ),
            option("--threads", type=THREADS, help="CPU threads. [default: torch's choice]"),
            option(
                "--trust-remote-code", is_flag=True, help="Run code that comes with the checkpoint."
            ),
        ]
    )(function)


def load_model(
    model: str, dtype: str, device: str, threads: int | None, *, trust_remote_code: bool
) -> Loaded:
    """The model that the values of :func:`model_options` name, loaded without progress bars.

    Raises:
        DraftwoodError: it cannot be loaded.
    """
    from draftwood.models import load_quietly

    return load_quietly(model, dtype, device, threads, trust_remote_code=trust_remote_code)


def sampling_options(function: F) -> F:
    """The flags that :func:`sampling_of` turns into sampling parameters."""
    option = partial(click.option, cls=Option, section="Sampling")
    number = partial(option, type=float, show_default=True)
    return _stack(
        [
            number("--temperature", default=0.0, help="Divides the logits; 0 is greedy."),
            option(
                "--top-k",
                type=int,
                default=0,
                show_default=True,
                help="Keep the K likeliest tokens; 0 keeps all.",
            ),
            number("--top-p", default=1.0, help="Keep the fewest tokens of this probability."),
            number("--min-p", default=0.0, help="Drop tokens below this times the likeliest."),
            number(
                "--repetition-penalty",
                default=1.0,
                help="Above 1, tokens of the prompt and the text become less likely.",
            ),
            number(
                "--presence-penalty",
                default=0.0,
                help="Subtracted from the logit of every token that was generated before.",
            ),
            number(
                "--frequency-penalty",
                default=0.0,
                help="Subtracted once for each time that a token was generated.",
            ),
            option(
                "--logit-bias",
                multiple=True,
                metavar="ID=BIAS",
                help="Added to the logit of a token, by its id. Repeatable.",
            ),
            option(
                "--ban",
                "banned",
                multiple=True,
                type=int,
                metavar="ID",
                help="A token id that is never generated. Repeatable.",
            ),
            option(
                "--seed",
                type=int,
                default=0,
                show_default=True,
                help="Of the random numbers above temperature 0.",
            ),
        ]
    )(function)


def sampling_of(
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    presence_penalty: float,
    frequency_penalty: float,
    logit_bias: tuple[str, ...],
    banned: tuple[int, ...],
    seed: int,
) -> SamplingParams:
    """Sampling parameters from the values of :func:`sampling_options`."""
    return SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=dict(_bias(text) for text in logit_bias),
        banned_tokens=banned,
        seed=seed,
    )


def _bias(text: str) -> tuple[int, float]:
    token, equals, bias = text.partition("=")
    try:
        if equals:
            return int(token), float(bias)
    except ValueError:
        pass
    raise DraftwoodError(f"--logit-bias {text!r}: write TOKEN_ID=BIAS, e.g. 42=-1.5")


def numbers(flag: str, text: str, kind: Callable[[str], N], advice: str) -> tuple[N, ...]:
    """The numbers of a comma-separated list.

    Args:
        flag: that was given.
        text: its value.
        kind: ``int`` or ``float``.
        advice: what to write instead.

    Raises:
        DraftwoodError: one of them is none; the flag, its value and the advice.
    """
    try:
        return tuple(kind(word) for word in text.split(","))
    except ValueError:
        raise DraftwoodError(f"{flag} {text!r}: {advice}") from None
