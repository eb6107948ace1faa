"""Exact enumeration of a random process by replaying its decisions.

A process asks a :class:`Tape` wherever chance enters. The tape answers with recorded decisions,
then with the first possible one, and notes the others; run again for each of these, the process
goes through all its outcomes, each with its probability. Knows nothing of what is decided.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from draftwood.errors import DraftwoodError

S = TypeVar("S")
T = TypeVar("T")

BATCH = 256
"""Replays that are run together, so that a batch of trees pays for a call once."""
MOST = 200_000
SLACK = 1e-9


class ChanceError(DraftwoodError):
    """Chance entered where its share cannot be known, so that nothing is proven."""


class TooManyOutcomesError(DraftwoodError):
    """There are more outcomes than one is willing to go through."""


class Tape:
    """One replay.

    Args:
        prefix: decisions to take first, as numbers of their options.

    Attributes:
        weight: probability of the decisions taken so far.
        forks: prefixes of the replays that decide otherwise somewhere behind ``prefix``.
    """

    __slots__ = ("_prefix", "_taken", "forks", "weight")

    def __init__(self, prefix: tuple[int, ...] = ()) -> None:
        self._prefix = prefix
        self._taken: list[int] = []
        self.weight = 1.0
        self.forks: list[tuple[int, ...]] = []

    @property
    def finished(self) -> bool:
        """Whether all recorded decisions have been asked for."""
        return len(self._taken) >= len(self._prefix)

    def branch(self, weights: Sequence[float]) -> int:
        """Decide among options in proportion to ``weights``; the number of the one decided for.

        Raises:
            ChanceError: the weights are no weights, or other ones than in the replay before.
        """
        total = math.fsum(weights)
        if not (0 < total < math.inf and min(weights) >= 0):
            raise ChanceError(f"a choice was asked for among weights {list(weights)}")
        step = len(self._taken)
        if step < len(self._prefix):
            chosen = self._prefix[step]
            if chosen >= len(weights) or not weights[chosen] > 0:
                raise ChanceError("equal decisions led to different questions")
        else:
            possible = [option for option, weight in enumerate(weights) if weight > 0]
            chosen = possible[0]
            self.forks += [(*self._taken, other) for other in possible[1:]]
        self._taken.append(chosen)
        self.weight *= weights[chosen] / total
        return chosen


def explore(
    run: Callable[[Sequence[S], Sequence[Tape]], Sequence[T]],
    starts: Sequence[S],
    most: int = MOST,
) -> list[list[tuple[T, float]]]:
    """All outcomes of a process from each start, with their probabilities.

    Args:
        run: the process, for several starts at once with a tape each; a start comes as often as it
            has outcomes, and its runs may share a call with any others.
        starts: where to begin.
        most: give up beyond so many outcomes of all starts together.

    Raises:
        TooManyOutcomesError: there are more than ``most``.
        ChanceError: chance entered elsewhere: some start's probabilities do not add up to 1.
    """
    found: list[list[tuple[T, float]]] = [[] for _ in starts]
    waiting: list[tuple[int, tuple[int, ...]]] = [(i, ()) for i in range(len(starts))]
    done = 0
    while waiting:
        batch, waiting = waiting[-BATCH:], waiting[:-BATCH]
        tapes = [Tape(prefix) for _, prefix in batch]
        results = run([starts[i] for i, _ in batch], tapes)
        for (i, _), tape, result in zip(batch, tapes, results, strict=True):
            if not tape.finished:
                raise ChanceError("equal decisions led to fewer questions")
            found[i].append((result, tape.weight))
            waiting += [(i, fork) for fork in tape.forks]
        done += len(batch)
        if done + len(waiting) > most:
            raise TooManyOutcomesError(f"there are more than {most} outcomes: allow fewer nodes")
    for outcomes in found:
        total = math.fsum(weight for _, weight in outcomes)
        if abs(total - 1) > SLACK:
            raise ChanceError(f"the outcomes' probabilities add up to {total}, not to 1")
    return found
