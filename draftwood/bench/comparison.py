"""From a method's runs to its rows: each held against the reference's tokens.

Knows nothing of how runs came about, and of what becomes of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from draftwood.bench.divergence import Divergence, divergence
from draftwood.bench.rows import Row, Run, row_of

Key: TypeAlias = tuple[str, int]
"""A prompt's id and the seed of the run."""


@dataclass(frozen=True)
class Compared:
    """The rows of a method, and where its runs first differ from the reference's."""

    rows: list[Row]
    divergences: list[Divergence]


def references(runs: Sequence[Run], method: str) -> dict[Key, Run]:
    """The first run of the reference method for every prompt and seed."""
    return {
        (run.prompt.id, run.run_seed): run
        for run in runs
        if run.method == method and not run.repeat
    }


def compare(
    runs: Sequence[Run],
    against: Mapping[Key, Run],
    explain: Callable[[Divergence, Run, Run], Divergence],
) -> Compared:
    """The rows of some runs of one method.

    Args:
        runs: a run is not compared with itself.
        against: what to compare with; a run whose prompt and seed are not in it is not compared.
        explain: the divergence of a run from a reference, with what is to be known of it.
    """
    found = Compared([], [])
    for run in runs:
        reference = against.get((run.prompt.id, run.run_seed))
        identical = None
        if reference is not None and reference is not run:
            wrong = divergence(run, reference)
            identical = wrong is None
            if wrong is not None:
                found.divergences.append(explain(wrong, run, reference))
        found.rows.append(row_of(run, identical))
    return found
