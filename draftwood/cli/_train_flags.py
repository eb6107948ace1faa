"""Options of ``draftwood train``; each decorator adds some and passes them as one object."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from draftwood.cli._options import PATH
from draftwood.errors import DraftwoodError
from draftwood.lab.train.recipe import UNROLL, ModelShape, TrainingRecipe

if TYPE_CHECKING:
    import torch

    from draftwood.lab.train.training_run import TrainingRun

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

_MIXTURE = "code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18"
_PRECISION = defaultdict(lambda: "float32", cuda="bfloat16")


def run_flags(function: Command) -> Command:
    """Options packed as ``run``: texts, run directory and device."""

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
        from draftwood.lab.train.training_run import TrainingRun

        if threads is not None:
            torch.set_num_threads(threads)
        function(TrainingRun(data, out, parse_mixture(mixture), _device(device), sources), **rest)

    return _with_flags(
        function,
        pack,
        click.option("--data", type=PATH, required=True, help="Directory of *.txt.gz files."),
        click.option(
            "--out",
            type=PATH,
            required=True,
            help="Run directory: tokenizer, cached tokens, checkpoints, models.",
        ),
        click.option(
            "--mixture",
            default=_MIXTURE,
            show_default=True,
            help="Share of each domain in the training text.",
        ),
        click.option(
            "--sources",
            type=PATH,
            help="JSON about the texts' origin and licences.  [default: DATA/manifest.json]",
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            help="A torch device (cpu, cuda:0); auto: CUDA if available.",
        ),
        click.option("--threads", type=int, help="CPU threads.  [default: torch's choice]"),
    )


def job_flags(function: Command) -> Command:
    """Options packed as ``job``: execution of the run. Goes below :func:`run_flags`."""

    def pack(
        run: TrainingRun,
        micro_tokens: int,
        precision: str | None,
        checkpoint_every: int,
        stop_after: int | None,
        export: Path | None,
        **rest: Any,
    ) -> None:
        import torch

        from draftwood.lab.train.training_run import RunOptions

        kind = run.device.type
        job = RunOptions(
            micro_tokens=micro_tokens,
            workers=torch.get_num_threads() if kind == "cpu" else 1,
            mixed=(precision or _PRECISION[kind]) == "bfloat16",
            checkpoint_every=checkpoint_every,
            stop_after=stop_after,
            export=export,
            command=_command(),
        )
        function(run, job=job, **rest)

    return _with_flags(
        function,
        pack,
        click.option("--micro-tokens", default=1024, show_default=True, help="Tokens per forward."),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16"]),
            help="Number format of matrix products.  [default: bfloat16 on a GPU, else float32]",
        ),
        click.option(
            "--checkpoint-every", default=100, show_default=True, help="Updates per checkpoint."
        ),
        click.option(
            "--stop-after", type=int, help="Stop after N updates; the run can be resumed."
        ),
        click.option(
            "--export", type=PATH, help="Also write the finished model to this directory."
        ),
    )


def shape_flags(base: ModelShape) -> Decorator:
    """Options packed as ``shape``, by default ``base``, and the option ``vocab_size``."""

    def decorate(function: Command) -> Command:
        def pack(
            run: TrainingRun,
            hidden: int,
            layers: int,
            heads: int,
            kv_heads: int,
            head_dim: int,
            ffn: int,
            **rest: Any,
        ) -> None:
            shape = ModelShape(hidden, layers, heads, kv_heads, head_dim, ffn)
            function(run, shape=shape, **rest)

        def size(name: str, default: int, text: str) -> Decorator:
            return click.option(name, default=default, show_default=True, help=text)

        return _with_flags(
            function,
            pack,
            vocabulary_flag,
            size("--hidden", base.hidden, "Hidden size."),
            size("--layers", base.layers, "Number of layers."),
            size("--heads", base.heads, "Number of query heads."),
            size("--kv-heads", base.kv_heads, "Number of key-value heads."),
            size("--head-dim", base.head_dim, "Size of a head."),
            size("--ffn", base.ffn, "Intermediate size of the feed-forward layers."),
        )

    return decorate


def plan_flags(function: Command) -> Command:
    """Options packed as ``plan``: settings of an EAGLE-3 head."""

    def pack(
        run: TrainingRun,
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
        function(run, plan=plan, **rest)

    return _with_flags(
        function,
        pack,
        click.option(
            "--unroll",
            default=UNROLL,
            show_default=True,
            help="Trained steps: the length of draft chains.",
        ),
        click.option(
            "--taps",
            metavar="LAYERS",
            help="Target layers whose inputs are read, such as 2+4+5.  [default: 2, the middle "
            "one and the third from the end]",
        ),
        click.option(
            "--draft-vocab",
            type=int,
            help="Size of the draft vocabulary, the most frequent tokens.  [default: all of up to "
            "8,192, else 32,000]",
        ),
        click.option("--heads", type=int, help="Number of query heads.  [default: the target's]"),
        click.option(
            "--kv-heads", type=int, help="Number of key-value heads.  [default: the target's]"
        ),
        click.option("--head-dim", type=int, help="Size of a head.  [default: the target's]"),
        click.option(
            "--ffn",
            type=int,
            help="Intermediate size of the feed-forward layer.  [default: the target's]",
        ),
    )


def recipe_flags(base: TrainingRecipe) -> Decorator:
    """Options packed as ``recipe``: training settings, by default ``base``."""

    def decorate(function: Command) -> Command:
        def pack(
            run: TrainingRun,
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
            function(run, recipe=recipe, **rest)

        def number(name: str, default: float, text: str) -> Decorator:
            return click.option(name, default=default, show_default=True, help=text)

        return _with_flags(
            function,
            pack,
            number("--tokens", base.tokens, "Total training tokens; may change when resuming."),
            number("--length", base.length, "Tokens per row."),
            number("--rows", base.rows, "Rows per batch."),
            number(
                "--short-share",
                base.short_share,
                "Share of updates, the first ones, with rows cut in halves.",
            ),
            number("--warmup", base.warmup, "Updates until the peak rates."),
            number(
                "--decay-share",
                base.decay_share,
                "Share of updates, the last ones, with decreasing rates.",
            ),
            number("--muon-rate", base.muon_rate, "Peak learning rate of hidden matrices (Muon)."),
            number(
                "--adam-rate",
                base.adam_rate,
                "Peak learning rate of embeddings, output matrices and norms (AdamW).",
            ),
            number("--seed", base.seed, "Seed of the initial weights and the data order."),
        )

    return decorate


def vocabulary_flag(function: Command) -> Command:
    """The option ``vocab_size`` of a new tokenizer."""
    option = click.option("--vocab-size", default=4096, show_default=True, help="Vocabulary size.")
    return option(function)


def _with_flags(function: Command, pack: Command, *options: Decorator) -> Command:
    """``pack`` with the options of ``function`` and these above them."""
    packed: Command = functools.wraps(function)(pack)
    for option in reversed(options):
        packed = option(packed)
    return packed


def _command() -> str:
    """The command line for the record, without names of directories."""
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
        raise DraftwoodError(f"--taps {text!r}: write layer numbers, such as 2+4+5.") from None


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
