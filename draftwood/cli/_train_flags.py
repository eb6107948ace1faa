"""Options of all subcommands of ``draftwood train``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from draftwood.cli._method_flags import shown
from draftwood.cli._options import (
    PATH,
    THREADS,
    checked_device,
    not_in_option,
    refuse_overlap,
    stack,
)
from draftwood.cli._settings_flags import Command, Decorator
from draftwood.files import public_name
from draftwood.lab.train.recipe import VOCABULARY

_MIXTURE = "code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18"

vocabulary_flag = click.option(
    "--vocab-size",
    type=click.IntRange(1),
    help=f"Vocabulary size of the tokenizer.  [default: {VOCABULARY}, or that of the one in OUT]",
)


def run_flags(function: Command) -> Command:
    """Options packed as ``run``: texts, run directory and device."""

    @functools.wraps(function)
    def pack(
        data: Path,
        out: Path,
        mixture: str,
        sources: Path | None,
        device: str,
        threads: int | None,
        not_in: str | None,
        **rest: Any,
    ) -> None:
        import torch

        from draftwood.lab.train.batches import parse_mixture
        from draftwood.lab.train.training_run import TrainingRun
        from draftwood.models import device_named

        if threads is not None:
            torch.set_num_threads(threads)
        shares = parse_mixture(mixture)
        run = TrainingRun(data, out, shares, device_named(device), sources, _command())
        refuse_overlap(not_in, run.documents())
        function(run, **rest)

    decorate: Decorator = stack(
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
            callback=checked_device,
            help="cpu, or a CUDA device (cuda, cuda:1); auto: CUDA if available.",
        ),
        click.option("--threads", type=THREADS, help="CPU threads.  [default: torch's choice]"),
        not_in_option,
    )
    return decorate(pack)


def _command() -> str:
    """The command line for the record, without names of directories."""
    context = click.get_current_context()
    words = ["draftwood train", str(context.info_name), "--data DATA", "--out OUT"]
    for name, value in context.params.items():
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and not isinstance(value, Path):
            value = public_name(value) if name == "target" else value
            if name == "not_in":
                value = ",".join(Path(each).name for each in value.split(","))
            flag = f"--{name.replace('_', '-')}"
            words.append(flag if value is True else f"{flag} {shown(value)}")
    return " ".join(words)
