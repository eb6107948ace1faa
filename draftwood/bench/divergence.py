"""Where a method's tokens leave the reference's, and whether rounding alone can explain it.

A lossless method may still pick the other of two tokens whose logits differ by rounding, since a
tree is scored by other kernels than a single token. :mod:`draftwood.bench.margins` tells such a
near tie from a fault, greedy or sampled, in the dtype of the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

from draftwood.bench.margins import Margin
from draftwood.bench.rows import Run

Ask: TypeAlias = Callable[[Sequence[int], Sequence[int]], Margin]
"""The margin between tokens (the second argument) after others (the first)."""


@dataclass(frozen=True)
class Divergence:
    """The first difference between a run and the reference's.

    Attributes:
        id: the prompt's.
        run_seed: of the run.
        repeat: of the run.
        turn: whose answer differs, from 0.
        position: of the first differing token in that answer, from 0.
        expected: the reference's token there, None if its answer had ended.
        found: the method's, None likewise.
        gap: how far the worse of the two tokens was from being chosen there, in logits; None if
            an answer had ended, and before it is computed.
        bound: how far rounding can move that; None likewise.
        near_tie: whether rounding decides; None before it is computed.
    """

    id: str
    run_seed: int
    repeat: int
    turn: int
    position: int
    expected: int | None
    found: int | None
    gap: float | None = None
    bound: float | None = None
    near_tie: bool | None = None

    @property
    def fault(self) -> bool:
        """Whether it is known that rounding cannot explain it."""
        return self.near_tie is False


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
