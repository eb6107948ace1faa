"""Replays a recording at the step costs of larger models on GPUs, estimated from data sheets.

    python runs/smollm2/modelled.py RECORDING --model smollm2 [--head HEAD] [--kept DIR]

Calls ``draftwood replay`` for each GPU and shape. Prints one JSON object: by GPU and shape, each
method's expected speed-up over plain decoding, tokens a step and nodes a step at each batch size.
``--model`` is asked for rows that the recording lacks, which are added to it. What has been found
for a GPU and a shape is kept in DIR, so that a call goes on where the last one stopped.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from draftwood.files import write_json
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.file import read
from runs.smollm2.recorded import answers, facts

KEPT = ("speedup", "mean_acceptance_length", "drafted_per_step")


def replayed(recording: Path, words: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by method and batch size."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "found.json")
        command = [sys.executable, "-m", "draftwood", "replay", str(recording), *words]
        subprocess.run([*command, "--json", str(path)], check=True, stdout=sys.stderr)
        found: list[dict[str, Any]] = json.loads(path.read_text())["methods"]
    return {
        each["method"]: {
            str(speed["load"]["batch"]): {name: speed[name] for name in KEPT}
            for speed in each["speeds"]
        }
        for each in found
    }


def once(recording: Path, words: list[str], kept: Path | None) -> dict[str, dict[str, Any]]:
    """The figures of :func:`replayed`, which are read where they are kept for the same words."""
    if kept is not None and kept.exists():
        known: dict[str, Any] = json.loads(kept.read_text())
        if known["words"] == words:
            figures: dict[str, dict[str, Any]] = known["figures"]
            return figures
    found = replayed(recording, words)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"words": words, "figures": found})
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("recording", type=Path)
    asked.add_argument("--model", required=True)
    asked.add_argument("--head")
    asked.add_argument("--gpus", default="h100,rtx4090")
    asked.add_argument("--shapes", default="1b,8b,32b")
    asked.add_argument("--batches", default="1,4,16,64")
    asked.add_argument("--context", default="1000")
    asked.add_argument("--kept", type=Path)
    options = asked.parse_args()
    given = "" if options.head is None else f":head={options.head}"
    # A replay needs drafts that do not depend on the random numbers.
    methods = ["ar", f"auto{given}:layout=ranked", "auto:shipped=table:neural="]
    methods += ["auto:shipped=off:neural=", "goose", "pld", *([f"eagle3{given}"] if given else [])]
    words = ["--methods", ",".join(methods), "--model", options.model]
    words += ["--batch", options.batches, "--context", options.context, "--draft-shape", "head"]
    found: dict[str, dict[str, Any]] = {}
    for gpu in options.gpus.split(","):
        for shape in options.shapes.split(","):
            kept = None if options.kept is None else options.kept / f"{gpu}_{shape}.json"
            own = [*words, "--gpu", gpu, "--shape", shape]
            found.setdefault(gpu, {})[shape] = once(options.recording, own, kept)
    recording = read(options.recording)
    origin = provenance(
        model=facts(recording),
        settings={**answers(recording), "context": int(options.context)},
        sets=[],
    )
    click.echo(json.dumps({"provenance": origin, "modelled": found}, indent=1))


if __name__ == "__main__":
    main()
