"""Writes one JSON line per step, between timed runs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.runs import Job


def trace(file: TextIO, job: Job, prompt: Prompt, turn: int, steps: Sequence[StepStats]) -> None:
    """Write the steps of one answer to an open text file."""
    for number, step in enumerate(steps):
        record = {
            "method": job.method,
            "id": prompt.id,
            "run_seed": job.run_seed,
            "repeat": job.repeat,
            "turn": turn,
            "step": number,
            **fields(step),
        }
        file.write(json.dumps(record) + "\n")
    file.flush()


def fields(step: StepStats) -> dict[str, object]:
    """A step's members of its line."""
    tree = step.tree
    return {
        "route": tree.route,
        "kind": step.kind,
        "drafted": tree.drafted,
        "depth": tree.depth,
        "accepted": len(step.path),
        "committed": step.committed,
        "predicted": step.expected,
        "drafted_by_source": dict(Counter(tree.sources[1:])),
        "accepted_by_source": dict(Counter(tree.sources[i] for i in step.path)),
        "batch": step.batch,
        "seconds": asdict(step.times),
    }
