"""Command-line options that several subcommands share, and how they become library objects."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.recipes import Method
from draftwood.sampling import SamplingParams

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)


def _stack(decorators: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    return lambda function: reduce(lambda f, d: d(f), reversed(decorators), function)


def model_options(function: F) -> F:
    """``--model``, ``--dtype``, ``--device``, ``--threads``, ``--trust-remote-code``."""
    return _stack(
        [
            click.option(
                "--model",
                default="embedded",
                help="'embedded', a directory or a hub id.",
                show_default=True,
            ),
            click.option(
                "--dtype",
                default="auto",
                help="auto, float32, bfloat16 or float16.",
                show_default=True,
            ),
            click.option(
                "--device", default="auto", help="A torch device, or auto.", show_default=True
            ),
            click.option(
                "--threads",
                type=click.IntRange(1),
                help="CPU threads (torch's choice if not given).",
            ),
            click.option(
                "--trust-remote-code", is_flag=True, help="Run code that comes with the checkpoint."
            ),
        ]
    )(function)


def sampling_options(function: F) -> F:
    """The flags that :func:`sampling_of` turns into sampling parameters."""
    return _stack(
        [
            click.option(
                "--temperature", type=float, default=0.0, show_default=True, help="0 is greedy."
            ),
            click.option("--top-k", type=int, default=0, show_default=True, help="0 is off."),
            click.option("--top-p", type=float, default=1.0, show_default=True),
            click.option("--min-p", type=float, default=0.0, show_default=True),
            click.option("--repetition-penalty", type=float, default=1.0, show_default=True),
            click.option("--presence-penalty", type=float, default=0.0, show_default=True),
            click.option("--frequency-penalty", type=float, default=0.0, show_default=True),
            click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Repeatable."),
            click.option(
                "--ban", "banned", multiple=True, type=int, metavar="ID", help="Repeatable."
            ),
            click.option("--seed", type=int, default=0, show_default=True),
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


def method_of(name: str, budget: int | None, extra: Sequence[str]) -> Method:
    """The method with ``--budget`` and further ``--setting value`` flags of its parts."""
    spelt = _settings(extra)
    if budget is not None:
        spelt.append(f"budget={budget}")
    return method(":".join([name, *spelt]))


def _settings(extra: Sequence[str]) -> list[str]:
    """``--setting value`` and ``--setting=value`` as ``setting=value``."""
    spelt: list[str] = []
    rest = list(extra)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise DraftwoodError(f"unexpected argument {word!r}: quote a prompt that has spaces")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise DraftwoodError(f"option {word} needs a value")
            value = rest.pop(0)
        spelt.append(f"{key.replace('-', '_')}={value}")
    return spelt
