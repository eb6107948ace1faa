"""Exact enumeration of a random process by replaying its decisions.

A process asks a :class:`Tape` wherever chance enters. The tape answers with recorded decisions,
then with the first possible one, and notes the others; run again for each of these, the process
goes through all its outcomes, each with its probability. Knows nothing of what is decided.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Verdict

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


class Chance:
    """Implements :class:`draftwood.protocols.Noise` and :class:`draftwood.protocols.DraftNoise`."""

    __slots__ = ("_chosen", "_drawn", "_judged", "_tape")

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._drawn: set[int] = set()
        self._judged: set[int] = set()
        self._chosen: set[int] = set()

    def draft(self, lane: int) -> np.random.Generator:
        """Numbers of its own for a policy, whose outcomes nobody could go through.

        Raises:
            ChanceError: always.
        """
        raise ChanceError(
            f"numbers for node {lane} were drawn outside a drafter: they cannot be enumerated"
        )

    def exponentials(self, depth: int, size: int) -> NDArray[np.float64]:
        """The numbers of a token that is yet to be drawn, of which there are infinitely many.

        Raises:
            ChanceError: always.
        """
        raise ChanceError(
            f"the numbers of {size} tokens after depth {depth} were asked for outside a drafter: "
            "they cannot be enumerated"
        )

    def sample(self, node: int) -> Tape:
        """What decides the children that are sampled below ``node``, all of one query.

        Raises:
            ChanceError: they were sampled before, with the same numbers.
        """
        if node in self._drawn:
            raise ChanceError(
                f"children of node {node} are sampled in two queries, which draw the same numbers"
            )
        self._drawn.add(node)
        return self._tape

    def accepts(self, node: int, probability: float) -> bool:
        """True with that probability; one outside [0, 1] is its nearer end, and NaN is 0.

        Raises:
            ChanceError: the node was asked about before.
        """
        if node in self._judged:
            raise ChanceError(f"node {node} is judged twice, by the same number")
        self._judged.add(node)
        if not 0 < probability < 1:
            return probability > 0
        return self._tape.branch((1 - probability, probability)) == 1

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """An index of ``weights`` ``[V]``, in proportion to them.

        Weights of which none is positive, or some not finite, leave nothing to chance: real numbers
        give them one answer, and so does this. Rounding can bring a verifier there; the law shows
        how often.

        Raises:
            ChanceError: a choice was made at this depth before.
        """
        if depth in self._chosen:
            raise ChanceError(f"two tokens are chosen at depth {depth}, by the same numbers")
        self._chosen.add(depth)
        shares = [max(share, 0.0) for share in weights.tolist()]
        if not 0 < sum(shares) < math.inf:
            return int(weights.argmax())
        return self._tape.branch(shares)

    def settle(self, verdict: Verdict) -> None:
        """The step has ended this way.

        Raises:
            ChanceError: a token was chosen where none was committed, by numbers that the next
                step uses again.
        """
        deepest = max(self._chosen, default=0)
        if deepest > len(verdict.path):
            raise ChanceError(
                f"a token was chosen at depth {deepest}, but only {len(verdict.path)} were "
                "accepted: the next step draws the same numbers"
            )
