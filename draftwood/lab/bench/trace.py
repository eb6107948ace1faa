"""Writes one JSON line per step, between timed runs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.runs import Where


class Trace:
    """Writes steps to an open text file."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, where: Where, steps: Sequence[StepStats]) -> None:
        """Write the steps of one answer."""
        for number, step in enumerate(steps):
            record = {
                "method": where.job.method,
                "id": where.prompt.id,
                "run_seed": where.job.run_seed,
                "repeat": where.job.repeat,
                "turn": where.turn,
                "step": number,
                **fields(step),
            }
            self._file.write(json.dumps(record) + "\n")
        self._file.flush()


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
