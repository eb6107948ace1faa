"""Where a method's tokens leave the reference's, and whether rounding alone can explain it.

A lossless method may still pick the other of two tokens whose logits differ by rounding, since a
tree is scored by other kernels than a single token. :mod:`draftwood.lab.bench.margins` tells such a
near tie from a fault, greedy or sampled, in the dtype of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.figures import Row
from draftwood.lab.bench.margins import Margin
from draftwood.lab.bench.rows import Run, row_of

Ask: TypeAlias = Callable[[Sequence[int], Sequence[int]], Margin]
"""The margin between tokens (the second argument) after others (the first)."""


def divergence(run: Run, reference: Run) -> Divergence | None:
    """The first difference in tokens, or None."""
    for number, (wanted, got) in enumerate(zip(reference.tokens, run.tokens, strict=True)):
        for position, (a, b) in enumerate(zip_longest(wanted, got)):
            if a != b:
                return Divergence(run.prompt.id, run.run_seed, run.repeat, number, position, a, b)
    return None


def explain(found: Divergence, reference: Run, ask: Ask) -> Divergence:
    """The divergence with its margin, by the reference's tokens up to it.

    An answer that ended where the other went on has no margin: both had the token that ended it,
    and that is a fault.
    """
    if found.expected is None or found.found is None:
        return replace(found, near_tie=False)
    turn = reference.turns[found.turn]
    tokens = (*turn.context.ids, *turn.completion.tokens[: found.position])
    margin = ask(tokens, (found.expected, found.found))
    return replace(found, gap=margin.gap, bound=margin.bound, near_tie=margin.near_tie)


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
