"""Figures about step costs that a person asks for: how much a tree costs, and when it pays.

*Break-even* is how many drafted tokens a step must get accepted on average for decoding to be as
fast as plain decoding: the step's seconds over a plain step's, minus the bonus token that both
yield. Pure; prints nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.costs.curve import StepCosts
from draftwood.costs.fit import Sample


@dataclass(frozen=True)
class TargetRow:
    """The target's forward over trees of one size.

    Attributes:
        nodes: drafted nodes of each sequence's tree.
        timed: seconds as timed; None if this was not.
        seconds: by the curve.
        ratio: over a forward without drafted nodes, T(n)/T(1).
        break_even: for drafts that cost no forward.
        break_even_chain: for a chain of that many nodes, a draft forward each; None if no drafter
            was measured.
    """

    nodes: int
    timed: float | None
    seconds: float
    ratio: float
    break_even: float
    break_even_chain: float | None


@dataclass(frozen=True)
class LevelRow:
    """A drafter's level of one width: seconds as timed, by the curve, and over T(1)."""

    width: int
    timed: float | None
    seconds: float
    ratio: float


def target_rows(
    costs: StepCosts,
    samples: Sequence[Sample],
    sizes: Sequence[int],
    context: int,
    batch: int,
    source: str | None = None,
) -> list[TargetRow]:
    """One row for each size.

    Args:
        costs: of a step.
        samples: what was timed.
        sizes: tokens of each sequence's tree, root included.
        context: cached tokens of each sequence.
        batch: sequences.
        source: the drafter of chains, if there is one.
    """
    timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples}
    cached = context * batch
    one = costs.target.seconds(batch, cached, batch)
    plain = costs.step(batch, cached, batch)
    rows = []
    for size in sizes:
        tokens = size * batch
        chain = None
        if source is not None:
            levels = {source: [batch] * (size - 1)}
            chain = costs.step(tokens, cached, batch, levels) / plain - 1
        seconds = costs.target.seconds(tokens, cached, batch)
        rows.append(
            TargetRow(
                nodes=size - 1,
                timed=timed.get((tokens, cached, batch)),
                seconds=seconds,
                ratio=seconds / one,
                break_even=costs.step(tokens, cached, batch) / plain - 1,
                break_even_chain=chain,
            )
        )
    return rows


def level_rows(
    costs: StepCosts,
    source: str,
    samples: Sequence[Sample],
    widths: Sequence[int],
    context: int,
    batch: int,
) -> list[LevelRow]:
    """One row for each width of a level, in nodes of each sequence."""
    timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples}
    cached, level = context * batch, costs.drafters[source]
    one = costs.target.seconds(batch, cached, batch)
    found = [(width, level.seconds(width * batch, cached, batch)) for width in widths]
    return [
        LevelRow(width, timed.get((width * batch, cached, batch)), seconds, seconds / one)
        for width, seconds in found
    ]
