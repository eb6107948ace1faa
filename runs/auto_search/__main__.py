"""Plays the parts over a recording and prints one JSON object; tables go to standard error.

python -m runs.auto_search RECORDING --model embedded --parts nodes,faults,calibration
"""

import hashlib
import json
from pathlib import Path

import click
import torch

from draftwood.cli._options import numbers
from draftwood.cli.replay import live_model
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.file import read
from draftwood.lab.replay.pricing import read_costs
from runs.auto_search.equal_nodes import DRAFTED, FREE, compared
from runs.auto_search.faults import DRAFTED_OTHERS, OTHERS, faults
from runs.auto_search.foretold import errors
from runs.auto_search.playing import COSTS, Plays
from runs.auto_search.tables import tables

PARTS = ("nodes", "faults", "calibration")
SOURCES = ("free", "drafted")


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, exists=True))
@click.option("--model", help="The recorded model, to be asked for what the recording lacks.")
@click.option("--parts", default=",".join(PARTS), show_default=True)
@click.option("--sizes", default="4,8,16,32,60", show_default=True, help="Nodes of a tree.")
@click.option("--sources", default="free,drafted", show_default=True, help="drafted: and a model.")
@click.option(
    "--warm",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Steps of a set before a kept tuner is judged.",
)
@click.option("--limit", type=click.IntRange(1), help="The first N prompts of each set.")
@click.option("--costs", "costs_file", type=click.Path(path_type=Path), help="As for replay.")
def main(
    recording: Path,
    model: str | None,
    parts: str,
    sizes: str,
    sources: str,
    warm: int,
    limit: int | None,
    costs_file: Path | None,
) -> None:
    """Say what of auto is left to gain over RECORDING, and by what."""
    torch.set_num_threads(1)
    asked = parts.split(",")
    kinds = sources.split(",")
    for flag, given, known in (("--parts", asked, PARTS), ("--sources", kinds, SOURCES)):
        if set(given) - set(known):
            raise click.UsageError(f"{flag} has {','.join(given)}: choose from {', '.join(known)}")
    nodes = numbers("--sizes", sizes, int, "write numbers, such as 4,16")
    origin = hashlib.sha256(recording.read_bytes()).hexdigest()[:16]
    held = read(recording)
    costs = read_costs(costs_file) if costs_file else COSTS
    live = live_model(model, "cpu", held) if model else None
    plays = Plays(held, recording, costs, live, limit)
    found: dict[str, object] = {}
    for name in kinds:
        contest = {"free": FREE, "drafted": DRAFTED}[name]
        if "nodes" in asked:
            found[f"nodes_{name}"] = compared(plays, nodes, contest)
        if "faults" in asked:
            rivals = DRAFTED_OTHERS if name == "drafted" else OTHERS
            found[f"faults_{name}"] = faults(plays, contest.auto, rivals, nodes)
        if "calibration" in asked:
            found[f"calibration_{name}"] = errors(plays, contest.auto, warm)
    settings = {
        "recording": recording.name,
        "sha256_before": origin,
        "parts": asked,
        "sizes": nodes,
        "warm": warm,
        "limit": limit,
        "costs": costs.to_json(),
        "loops": len(plays.loops),
    }
    facts = {"name": held.model.name, "dtype": held.model.dtype, "digest": held.model.digest}
    origins = provenance(model=facts, settings=settings, sets=[])
    click.echo(tables(found), err=True)
    click.echo(json.dumps({"provenance": origins, **found}, indent=1))


if __name__ == "__main__":
    main()
