"""Differences between a method's tokens and the reference's, and their explanation by rounding.

A lossless method may choose the other of two tokens whose logits differ by rounding, because trees
and single tokens are scored by different kernels. :mod:`draftwood.lab.bench.margins` tells such
near ties from faults.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.margins import Margin
from draftwood.lab.bench.rows import Run, row_of

Ask: TypeAlias = Callable[[Sequence[int], Sequence[int], int], Margin]
"""The margin between tokens (the second argument) after others (the first), drawn with a seed."""


def divergences(run: Run, reference: Run) -> Iterator[Divergence]:
    """The first difference in tokens of each turn: every turn continues the reference's answers."""
    for number, (wanted, got) in enumerate(zip(reference.tokens, run.tokens, strict=True)):
        for position, (a, b) in enumerate(zip_longest(wanted, got)):
            if a != b:
                yield Divergence(run.prompt.id, run.run_seed, run.repeat, number, position, a, b)
                break


def explain(found: Divergence, reference: Run, ask: Ask) -> Divergence:
    """The divergence with its margin after the reference's tokens.

    If one answer ended and the other did not, it is a fault: both had the token that ended it.
    """
    if found.expected is None or found.found is None:
        return replace(found, near_tie=False)
    turn = reference.turns[found.turn]
    tokens = (*turn.context.ids, *turn.completion.tokens[: found.position])
    margin = ask(tokens, (found.expected, found.found), reference.seed)
    return replace(found, gap=margin.gap, bound=margin.bound, near_tie=margin.near_tie)


PromptSeed: TypeAlias = tuple[str, int]
"""Prompt id and seed of the run."""


@dataclass(frozen=True)
class Compared:
    """Rows of a method, and the divergence of each row that has one: a fault before a near tie."""

    rows: list[RunRow]
    divergences: list[Divergence]


def references(runs: Sequence[Run], method: str) -> dict[PromptSeed, Run]:
    """The first run of the reference method for every prompt and seed."""
    return {
        (run.prompt.id, run.run_seed): run
        for run in runs
        if run.method == method and not run.repeat
    }


def compare(runs: Sequence[Run], against: Mapping[PromptSeed, Run], ask: Ask | None) -> Compared:
    """Compare the runs of one method with the reference.

    Args:
        runs: runs of the method; a run is not compared with itself.
        against: reference runs; a run whose prompt and seed are missing is not compared.
        ask: for margins of divergences; None leaves divergences unexplained.
    """
    found = Compared([], [])
    for run in runs:
        reference = against.get((run.prompt.id, run.run_seed))
        identical = None
        if reference is not None and reference is not run:
            wrong = [
                explain(each, reference, ask) if ask else each
                for each in divergences(run, reference)
            ]
            identical = not wrong
            if wrong:
                faults = (each for each in wrong if each.near_tie is False)
                found.divergences.append(next(faults, wrong[0]))
        found.rows.append(row_of(run, identical))
    return found
