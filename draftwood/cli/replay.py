"""``draftwood replay``: runs methods over a recording, without the model."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import (
    PATH,
    THREADS,
    ModelOptions,
    checked_device,
    progress,
    written_options,
)
from draftwood.cli._replay_flags import Output, output_options
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.replay.pricing import assumed_costs
from draftwood.methods import method, spellings
from draftwood.methods.equip import equipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftwood.costs.curve import StepCosts
    from draftwood.lab.replay.decoding import BatchStep, PromptRun
    from draftwood.lab.replay.figures import Figures, Speed
    from draftwood.lab.replay.hosts import PricedHost
    from draftwood.lab.replay.recording import Recording
    from draftwood.lab.replay.substitute import ReplayMethod
    from draftwood.methods.recipe import Method

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
@click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=checked_device,
    help="Device of --model.",
)
@click.option("--threads", type=THREADS, help="CPU threads of --model.")
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
@click.option(
    "--together",
    is_flag=True,
    help="Decode the prompts in batches of the sizes in --batch, as an engine does, with their own "
    "contexts. Otherwise the steps of single prompts are dealt into batches.",
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
    together: bool,
    output: Output,
) -> None:
    """Run METHODS over a RECORDING and print their figures.

    Trees, accepted paths and tokens are those of a live run. With --model, rows that the recording
    lacks are computed once and added to it, by a replay that is interrupted as well.
    """
    names = spellings(methods)
    output.check(names, path)
    given = written_options(click.get_current_context(), ["device", "trust_remote_code"])
    if given and model is None:
        raise DraftwoodError(f"{given[0]} is of --model: give one, or leave it out")

    if together and written_options(click.get_current_context(), ["context"]):
        raise DraftwoodError(
            "--together decodes with the prompts' own contexts: leave --context out"
        )

    import torch

    from draftwood.lab.bench.stopping import stoppable
    from draftwood.lab.replay.figures import speed_together
    from draftwood.lab.replay.file import read
    from draftwood.lab.replay.recording import MissingRowError
    from draftwood.lab.replay.replayer import Replayer
    from draftwood.lab.replay.substitute import harvest_accepted, replay_method

    recording = read(path)
    info = recording.model.info()
    adapted = harvest_accepted if harvest == "accepted" else (lambda found: found)
    chosen = {
        name: replay_method(adapted(_equipped(name, recording, live=model is not None)), info)
        for name in names
    }
    costs = output.costs(chosen.values())
    if together and costs is None:
        raise DraftwoodError("--together has no use without step costs: give --costs or --gpu")
    if threads:
        torch.set_num_threads(threads)
    host = None
    if model is not None:
        check_writable(path)
        options = ModelOptions(model, recording.model.dtype, device, None, trust_remote_code)
        host = load_recorded(options, recording, costs or assumed_costs())
    prompts = recording.prompts[:limit]
    decoding_plainly = replay_method(method("ar"), info)
    plain: dict[int, Sequence[BatchStep]] = {}

    def replayed(name: str, one: ReplayMethod) -> Figures:
        def runs(title: str, at: StepCosts) -> list[PromptRun]:
            replayer = Replayer(recording, host and host.priced(at), at)
            return [replayer.replay(one, prompt) for prompt in progress(prompts, title)]

        def in_batches(title: str, at: StepCosts, batch: int) -> Speed | None:
            click.echo(title, err=True)
            replayer = Replayer(recording, host and host.priced(at), at)
            if batch not in plain:
                plain[batch] = replayer.replay_together(decoding_plainly, prompts, batch).steps
            steps = replayer.replay_together(one, prompts, batch).steps
            return speed_together(steps, plain[batch], at, batch) if steps else None

        return output.figures(name, one.method, costs, runs, in_batches if together else None)

    def fallen_back(name: str, one: ReplayMethod) -> Figures:
        try:
            return replayed(name, one)
        except MissingRowError:
            fewer = replay_method(harvest_accepted(one.method), info)
            if harvest != "auto" or fewer.reads_rejected or not one.reads_rejected:
                raise
            click.echo(
                f"{name}: the recording lacks rows of rejected nodes, so its tables learn from "
                f"{_ACCEPTED_ONLY}; give --model to ask the model once",
                err=True,
            )
            return replayed(f"{name} ({_ACCEPTED_ONLY})", fewer)

    found: list[Figures] = []
    failed: dict[str, DraftwoodError] = {}
    with stoppable(), _rows_stored(path, recording):
        for name, one in chosen.items():
            try:
                found.append(fallen_back(name, one))
            except DraftwoodError as error:
                failed[name] = error
    if found:
        output.write(found, {"recording": str(path), "model": recording.model.name})
    if failed:
        raise DraftwoodError("; ".join(f"{name}: {error}" for name, error in failed.items()))


@contextmanager
def _rows_stored(path: Path, recording: Recording) -> Iterator[None]:
    """Store the rows that the recording gets within the block, even if that is interrupted."""
    from draftwood.lab.replay.file import write

    before = recording.size
    try:
        yield
    finally:
        if recording.size > before:
            write(path, recording)


def _equipped(name: str, recording: Recording, *, live: bool) -> Method:
    """The method with what is shipped for the recorded model, as far as the rows allow."""
    from draftwood.lab.replay.substitute import replay_method

    given, model = method(name), recording.model
    found = equipped(given, model.fingerprint).method
    if found.policy.draws == given.policy.draws:
        one, own = (replay_method(each, model.info()).recorded for each in (found, given))
        if live or {*one.values()} <= {*recording.rooted, *own.values()}:
            return found
    click.echo(
        f"{name}: the shipped head is left out: the recording has no rows for it; with "
        "layout=ranked and --model it is asked once",
        err=True,
    )
    return equipped(given, model.fingerprint, without=("head",)).method


def load_recorded(options: ModelOptions, recording: Recording, costs: StepCosts) -> PricedHost:
    """Load the recorded model.

    Raises:
        DraftwoodError: it cannot be loaded, or has other weights.
    """
    from draftwood.lab.replay.hosts import recorded_host

    return recorded_host(options.load(), options.name, [recording], costs)
