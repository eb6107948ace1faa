"""Replays a recording at the step costs of larger models on GPUs, estimated from data sheets.

    python runs/smollm2/modelled.py RECORDING --model smollm2 [--head HEAD]

Calls ``draftwood replay`` for each GPU and shape. Prints one JSON object: by GPU and shape, each
method's expected speed-up over plain decoding, tokens a step and nodes a step at each batch size.
``--model`` is asked for rows that the recording lacks, which are added to it. What has been found
for a GPU and a shape is kept beside the recording (:mod:`runs.smollm2.kept`), so that a call goes
on where the last one stopped.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click

from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.file import read
from runs.smollm2.kept import Kept, recorded_of

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


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("recording", type=Path)
    asked.add_argument("--model", required=True)
    asked.add_argument("--head")
    asked.add_argument("--gpus", default="h100,rtx4090")
    asked.add_argument("--shapes", default="1b,8b,32b")
    asked.add_argument("--batches", default="1,4,16,64")
    asked.add_argument("--context", default="1000")
    options = asked.parse_args()
    given = "" if options.head is None else f":head={options.head}"
    # A replay needs drafts that do not depend on the random numbers.
    methods = ["ar", f"auto{given}:layout=ranked", "auto:shipped=table:neural="]
    methods += ["auto:shipped=off:neural=", "goose", "pld", *([f"eagle3{given}"] if given else [])]
    words = ["--methods", ",".join(methods), "--model", options.model]
    words += ["--batch", options.batches, "--context", options.context, "--draft-shape", "head"]
    about = {"words": words, **recorded_of(read(options.recording))}
    kept = Kept(options.recording.with_suffix(".modelled.json"), about)
    found: dict[str, dict[str, Any]] = {}
    for gpu in options.gpus.split(","):
        for shape in options.shapes.split(","):
            own = [*words, "--gpu", gpu, "--shape", shape]
            find = partial(replayed, options.recording, own)
            found.setdefault(gpu, {})[shape] = kept.once(f"{gpu}, {shape}", find)
    origin = provenance(
        model=about["model"],
        settings={**about["answers"], "context": int(options.context)},
        sets=[],
    )
    click.echo(json.dumps({"provenance": origin, "modelled": found}, indent=1))


if __name__ == "__main__":
    main()
