"""The flags of `draftwood train`, a few at a time, each few made into the object they describe.

Every decorator adds flags to a click command and hands it one object instead of their values.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from draftwood.errors import DraftwoodError
from draftwood.lab.train.recipe import UNROLL, Recipe, Shape

if TYPE_CHECKING:
    import torch

    from draftwood.lab.train.recipe import Recipe, Shape
    from draftwood.lab.train.session import Session

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

_MIXTURE = "code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18"
_PRECISION = defaultdict(lambda: "float32", cuda="bfloat16")
_PATH = click.Path(path_type=Path)


def session_flags(function: Command) -> Command:
    """``session``: where texts come from and models go, and on which device."""

    def pack(
        data: Path,
        out: Path,
        mixture: str,
        sources: Path | None,
        device: str,
        threads: int | None,
        **rest: Any,
    ) -> None:
        import torch

        from draftwood.lab.train.batches import parse_mixture
        from draftwood.lab.train.session import Session

        if threads is not None:
            torch.set_num_threads(threads)
        function(Session(data, out, parse_mixture(mixture), _device(device), sources), **rest)

    return _with_flags(
        function,
        pack,
        click.option("--data", type=_PATH, required=True, help="Directory of *.txt.gz files."),
        click.option(
            "--out",
            type=_PATH,
            required=True,
            help="Directory of the run: tokenizer, cached tokens, checkpoints, exported models.",
        ),
        click.option(
            "--mixture", default=_MIXTURE, show_default=True, help="Share of each domain."
        ),
        click.option(
            "--sources",
            type=_PATH,
            help="JSON about the texts' origin and licences; DATA/manifest.json if not given.",
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            help="auto, cpu, cuda, or a torch device.",
        ),
        click.option("--threads", type=int, help="CPU threads; the machine's choice if not given."),
    )


def job_flags(function: Command) -> Command:
    """``job``: how the run is carried out. Goes below :func:`session_flags`."""

    def pack(
        session: Session,
        micro_tokens: int,
        precision: str | None,
        checkpoint_every: int,
        stop_after: int | None,
        export: Path | None,
        **rest: Any,
    ) -> None:
        import torch

        from draftwood.lab.train.session import Job

        kind = session.device.type
        job = Job(
            micro_tokens=micro_tokens,
            workers=torch.get_num_threads() if kind == "cpu" else 1,
            mixed=(precision or _PRECISION[kind]) == "bfloat16",
            checkpoint_every=checkpoint_every,
            stop_after=stop_after,
            export=export,
            command=_command(),
        )
        function(session, job=job, **rest)

    return _with_flags(
        function,
        pack,
        click.option(
            "--micro-tokens", default=1024, show_default=True, help="Tokens run through at once."
        ),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16"]),
            help="Of matrix products; bfloat16 on a GPU and float32 on a CPU if not given.",
        ),
        click.option(
            "--checkpoint-every", default=100, show_default=True, help="Updates per checkpoint."
        ),
        click.option("--stop-after", type=int, help="Stop after that many updates, to be resumed."),
        click.option("--export", type=_PATH, help="Where the model goes as well in the end."),
    )


def shape_flags(base: Shape) -> Decorator:
    """``shape``: a language model's, where no flag says otherwise ``base``; and ``vocab_size``."""

    from draftwood.lab.train.recipe import Shape

    def decorate(function: Command) -> Command:
        def pack(
            session: Session,
            hidden: int,
            layers: int,
            heads: int,
            kv_heads: int,
            head_dim: int,
            ffn: int,
            **rest: Any,
        ) -> None:
            shape = Shape(hidden, layers, heads, kv_heads, head_dim, ffn)
            function(session, shape=shape, **rest)

        def size(name: str, default: int, text: str) -> Decorator:
            return click.option(name, default=default, show_default=True, help=text)

        return _with_flags(
            function,
            pack,
            vocabulary_flag,
            size("--hidden", base.hidden, "Channels."),
            size("--layers", base.layers, "Layers."),
            size("--heads", base.heads, "Query heads."),
            size("--kv-heads", base.kv_heads, "Key-value heads."),
            size("--head-dim", base.head_dim, "Channels of a head."),
            size("--ffn", base.ffn, "Channels inside the feed-forward part."),
        )

    return decorate


def plan_flags(function: Command) -> Command:
    """``plan``: what is asked of an EAGLE-3 head."""

    def pack(
        session: Session,
        unroll: int,
        taps: str | None,
        draft_vocab: int | None,
        heads: int | None,
        kv_heads: int | None,
        head_dim: int | None,
        ffn: int | None,
        **rest: Any,
    ) -> None:
        from draftwood.lab.train.head import HeadPlan

        layers = None if taps is None else _taps(taps)
        plan = HeadPlan(unroll, layers, draft_vocab, heads, kv_heads, head_dim, ffn)
        function(session, plan=plan, **rest)

    return _with_flags(
        function,
        pack,
        click.option(
            "--unroll",
            default=UNROLL,
            show_default=True,
            help="Steps of a chain that are trained.",
        ),
        click.option(
            "--taps",
            metavar="LAYERS",
            help="The target's layers whose entering states are read, as in 2+4+5; 2, the middle "
            "and the last but two if not given.",
        ),
        click.option(
            "--draft-vocab",
            type=int,
            help="Tokens that can be drafted, the most frequent ones; all of up to 8,192, else "
            "32,000 if not given.",
        ),
        click.option("--heads", type=int, help="Query heads; the target's if not given."),
        click.option("--kv-heads", type=int, help="Key-value heads, likewise."),
        click.option("--head-dim", type=int, help="Channels of a head, likewise."),
        click.option("--ffn", type=int, help="Channels inside the feed-forward part, likewise."),
    )


def recipe_flags(base: Recipe) -> Decorator:
    """``recipe``: how long and how fast to train; where no flag says otherwise, ``base``."""

    def decorate(function: Command) -> Command:
        def pack(
            session: Session,
            tokens: int,
            length: int,
            rows: int,
            short_share: float,
            warmup: int,
            decay_share: float,
            muon_rate: float,
            adam_rate: float,
            seed: int,
            **rest: Any,
        ) -> None:
            recipe = replace(
                base,
                tokens=tokens,
                length=length,
                rows=rows,
                short_share=short_share,
                warmup=warmup,
                decay_share=decay_share,
                muon_rate=muon_rate,
                adam_rate=adam_rate,
                seed=seed,
            )
            function(session, recipe=recipe, **rest)

        def number(name: str, default: float, text: str) -> Decorator:
            return click.option(name, default=default, show_default=True, help=text)

        return _with_flags(
            function,
            pack,
            number("--tokens", base.tokens, "Tokens to train on in all; may change when resuming."),
            number("--length", base.length, "Tokens in a row."),
            number("--rows", base.rows, "Rows in a batch."),
            number(
                "--short-share", base.short_share, "Share of the updates with rows cut in halves."
            ),
            number("--warmup", base.warmup, "Updates until the full rate."),
            number("--decay-share", base.decay_share, "Share of the updates with falling rate."),
            number("--muon-rate", base.muon_rate, "Peak rate of the hidden matrices."),
            number(
                "--adam-rate", base.adam_rate, "Peak rate of embeddings, output matrices and norms."
            ),
            number("--seed", base.seed, "Of the initial weights and the data order."),
        )

    return decorate


def vocabulary_flag(function: Command) -> Command:
    """``vocab_size``, of a tokenizer that is yet to be made."""
    option = click.option(
        "--vocab-size", default=4096, show_default=True, help="Tokens in the vocabulary."
    )
    return option(function)


def _with_flags(function: Command, pack: Command, *options: Decorator) -> Command:
    """``pack`` in the place of ``function``, with its flags and these above them."""
    packed: Command = functools.wraps(function)(pack)
    for option in reversed(options):
        packed = option(packed)
    return packed


def _command() -> str:
    """Word the command for the record, with the flags given and without directories' names."""
    context = click.get_current_context()
    words = ["draftwood train", str(context.info_name), "--data DATA", "--out OUT"]
    for name, value in context.params.items():
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and not isinstance(value, Path):
            value = Path(value).name if name == "target" and Path(value).is_dir() else value
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)


def _taps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("+"))
    except ValueError:
        raise DraftwoodError(
            f"--taps {text!r} does not name layers; write them as in 2+4+5."
        ) from None


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DraftwoodError(f"{name!r} is not a device; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DraftwoodError("There is no CUDA device here; use --device cpu.")
    return device
