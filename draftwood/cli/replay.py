"""``draftwood replay``: runs methods over a recording, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import PATH, ModelOptions, progress
from draftwood.cli._replay_flags import Output, output_options
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.replay.pricing import assumed_costs
from draftwood.methods import method, spellings

if TYPE_CHECKING:
    from draftwood.lab.replay.figures import Figures
    from draftwood.lab.replay.recording import Recording
    from draftwood.lab.replay.replayer import RecordedModel, ReplayedPrompt, Replayer
    from draftwood.lab.replay.substitute import ReplayMethod

_ACCEPTED_ONLY = "accepted nodes only"


@click.command()
@click.argument("path", metavar="RECORDING", type=PATH)
@click.option(
    "--methods",
    default="ar,pld,goose,auto",
    show_default=True,
    help="Methods, with settings after colons (goose:budget=16).",
)
@click.option("--model", help="The recorded model, asked for rows that the recording lacks.")
@click.option("--device", default="auto", show_default=True, help="Device of --model.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads of --model.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that comes with --model.")
@click.option("--limit", type=click.IntRange(1), help="Replay the first N prompts.")
@click.option(
    "--harvest",
    type=click.Choice(["auto", "as-set", "accepted"]),
    default="auto",
    show_default=True,
    help="Nodes that tables learn from. as-set: the method's setting; accepted: accepted nodes, "
    "which needs no model; auto: as-set if the recording or --model has the rows.",
)
@output_options
def replay(
    path: Path,
    methods: str,
    model: str | None,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
    limit: int | None,
    harvest: str,
    output: Output,
) -> None:
    """Run METHODS over a RECORDING and print their figures.

    Trees, accepted paths and tokens are those of a live run. With --model, rows that the recording
    lacks are computed once and added to it.
    """
    names = spellings(methods)

    import torch

    from draftwood.lab.replay.figures import figures
    from draftwood.lab.replay.file import read, write
    from draftwood.lab.replay.recording import MissingRowError
    from draftwood.lab.replay.replayer import Replayer
    from draftwood.lab.replay.substitute import harvest_accepted, replay_method

    recording = read(path)
    info = recording.model.info()
    chosen = {name: method(name) for name in names}
    if harvest == "accepted":
        chosen = {name: harvest_accepted(found) for name, found in chosen.items()}
    replayable = {name: replay_method(found, info) for name, found in chosen.items()}
    costs = output.pricing.costs({s for found in replayable.values() for s in found.recorded})
    loads = output.loads_at(costs)
    if threads:
        torch.set_num_threads(threads)
    live = None
    if model is not None:
        check_writable(path)
        options = ModelOptions(model, recording.model.dtype, device, None, trust_remote_code)
        live = load_recorded(options, recording)
    replayer = Replayer(recording, live, costs or assumed_costs())
    before = recording.size
    found: list[Figures] = []
    try:
        for name, one in replayable.items():
            try:
                replayed = _replay(replayer, name, one, limit)
            except MissingRowError:
                fewer = replay_method(harvest_accepted(one.method), info)
                if harvest != "auto" or fewer.reads_rejected or not one.reads_rejected:
                    raise
                click.echo(
                    f"{name}: the recording lacks rows of rejected nodes, so its tables learn from "
                    f"{_ACCEPTED_ONLY}; give --model to ask the model once",
                    err=True,
                )
                name = f"{name} ({_ACCEPTED_ONLY})"
                replayed = _replay(replayer, name, fewer, limit)
            without = [each.run for each in replayed if not each.used_model]
            with_model = [each.run for each in replayed if each.used_model]
            found.append(figures(name, without, with_model, loads, costs))
    finally:  # keep the model's rows, even if interrupted
        if recording.size > before:
            write(path, recording)
    output.write(found, {"recording": str(path), "model": recording.model.name})


def _replay(
    replayer: Replayer, name: str, method: ReplayMethod, limit: int | None
) -> list[ReplayedPrompt]:
    prompts = replayer.recording.prompts[:limit]
    return [replayer.replay(method, prompt) for prompt in progress(prompts, name)]


def load_recorded(options: ModelOptions, recording: Recording) -> RecordedModel:
    """Load the recorded model.

    Raises:
        DraftwoodError: it cannot be loaded, or has other weights.
    """
    from draftwood.engine.host import ModelHost
    from draftwood.lab.replay.file import digest
    from draftwood.lab.replay.replayer import RecordedModel
    from draftwood.runner.attach import attach

    loaded = options.load()
    if digest(loaded.model) != recording.model.digest:
        raise DraftwoodError(
            f"{options.name!r} has other weights than the recorded {recording.model.name!r}: "
            "give the recorded model"
        )
    target = attach(loaded.model)
    return RecordedModel(target, ModelHost(target, loaded.tokenizer))
