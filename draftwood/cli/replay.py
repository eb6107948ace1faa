"""``draftwood replay``: what methods come to on a recording, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from draftwood.cli._options import load_model
from draftwood.cli._replay_flags import Pricing, loads_of, pricing_options, write_figures
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.replay.pricing import assumed_costs
from draftwood.methods import method, spellings

if TYPE_CHECKING:
    from draftwood.lab.replay.figures import Figures
    from draftwood.lab.replay.recording import Recording
    from draftwood.lab.replay.replayer import Live, Replayed, Replayer
    from draftwood.lab.replay.substitute import Part

_FEWER = "accepted nodes only"


@click.command()
@click.argument("path", metavar="RECORDING", type=click.Path(path_type=Path))
@click.option(
    "--methods",
    default="ar,pld,goose,auto",
    show_default=True,
    help="Comma-separated, settings behind colons (goose:budget=16).",
)
@click.option("--model", help="The recorded model, to be asked for what the recording lacks.")
@click.option("--device", default="auto", show_default=True, help="For --model.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads, for --model.")
@click.option("--trust-remote-code", is_flag=True, help="For --model.")
@click.option("--limit", type=click.IntRange(1), help="The first N prompts of the recording.")
@click.option(
    "--harvest",
    type=click.Choice(["auto", "as-set", "accepted"]),
    default="auto",
    show_default=True,
    help="What drafters learn from: as-set, as the method says; accepted, accepted nodes only, for "
    "which no model is needed; auto, as-set where the recording or --model has the rows.",
)
@pricing_options
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures here.")
def replay(
    path: Path,
    methods: str,
    model: str | None,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
    limit: int | None,
    harvest: str,
    costs_file: Path | None,
    gpu: str | None,
    shape: str | None,
    draft_shape: str | None,
    batch: str,
    context: str,
    output: Path | None,
) -> None:
    """Play METHODS over a RECORDING and say what they came to.

    Trees, accepted paths and tokens are those of a live run. With --model, prompts of which the
    recording lacks something are decoded live, and what the model says is added to the recording.
    """
    names = spellings(methods)
    if output is not None:
        check_writable(output)

    import torch

    from draftwood.cli._replay_flags import show
    from draftwood.lab.replay.figures import figures
    from draftwood.lab.replay.file import read, write
    from draftwood.lab.replay.recording import MissingRowError
    from draftwood.lab.replay.replayer import Replayer
    from draftwood.lab.replay.substitute import accepting, part_of

    recording = read(path)
    info = recording.model.info()
    chosen = {name: method(name) for name in names}
    if harvest == "accepted":
        chosen = {name: accepting(found) for name, found in chosen.items()}
    parts = {name: part_of(found, info) for name, found in chosen.items()}
    pricing = Pricing(costs_file, gpu, shape, draft_shape)
    costs = pricing.costs({source for part in parts.values() for source in part.modelled})
    loads = loads_of(batch, context) if costs is not None else []
    if threads:
        torch.set_num_threads(threads)
    live = None
    if model is not None:
        check_writable(path)
        live = live_model(model, device, recording, trust_remote_code=trust_remote_code)
    replayer = Replayer(recording, live, costs or assumed_costs())
    before = recording.size
    console = Console(stderr=True)
    found: list[Figures] = []
    try:
        for name, part in parts.items():
            try:
                played = _play(replayer, name, part, limit, console)
            except MissingRowError:
                fewer = part_of(accepting(part.method), info)
                if harvest != "auto" or fewer.reads_rejected or not part.reads_rejected:
                    raise
                click.echo(
                    f"{name}: the recording lacks rows of rejected nodes, so its tables learn from "
                    f"{_FEWER}; give --model to ask the model once",
                    err=True,
                )
                name = f"{name} ({_FEWER})"
                played = _play(replayer, name, fewer, limit, console)
            without = [one.played for one in played if not one.live]
            asked = [one.played for one in played if one.live]
            found.append(figures(name, without, asked, loads, costs))
    finally:  # interrupted or not, what the model said is kept
        if recording.size > before:
            write(path, recording)
    show(found, loads)
    if output is not None:
        facts: dict[str, object] = {"recording": str(path), "model": recording.model.name}
        write_figures(output, found, facts)


def _play(
    replayer: Replayer, name: str, part: Part, limit: int | None, console: Console
) -> list[Replayed]:
    prompts = replayer.recording.prompts[:limit]
    return [
        replayer.replay(part, prompt)
        for prompt in track(prompts, name, console=console, transient=True)
    ]


def live_model(
    name: str, device: str, recording: Recording, *, trust_remote_code: bool = False
) -> Live:
    """The recorded model, to be asked for what the recording lacks.

    Raises:
        DraftwoodError: it cannot be loaded, or has other weights.
    """
    facts = recording.model
    from draftwood.engine.host import ModelHost
    from draftwood.lab.replay.file import digest
    from draftwood.lab.replay.replayer import Live
    from draftwood.runner.attach import attach

    loaded = load_model(name, facts.dtype, device, None, trust_remote_code=trust_remote_code)
    if digest(loaded.model) != facts.digest:
        raise DraftwoodError(
            f"{name!r} has other weights than {facts.name!r}, which was recorded: give that one"
        )
    target = attach(loaded.model)
    return Live(target, ModelHost(target, loaded.tokenizer))
