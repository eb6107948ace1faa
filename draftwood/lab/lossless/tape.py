"""Exact enumeration of a random process by replays of its decisions.

A process asks a :class:`Tape` for every random decision. The tape answers with recorded decisions,
then with the first possible one, and records the alternatives. The process runs again for each
alternative, and so has all its outcomes, each with its probability.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Verdict

S = TypeVar("S")
T = TypeVar("T")

BATCH = 256
"""Replays that run together, so that a call handles a batch of trees."""
MOST = 200_000
"""Default for the largest number of outcomes."""
SLACK = 1e-9
"""Largest difference of a sum of probabilities from 1."""


class EnumerationError(DraftwoodError):
    """A random decision has an unknown probability, so the enumeration proves nothing."""


class TooManyOutcomesError(DraftwoodError):
    """There are more outcomes than the limit."""


class Tape:
    """One replay.

    Args:
        prefix: decisions to take first, as indices of their options.

    Attributes:
        weight: probability of the decisions taken so far.
        forks: prefixes of the replays with another decision after ``prefix``.
    """

    __slots__ = ("_prefix", "_taken", "forks", "weight")

    def __init__(self, prefix: tuple[int, ...] = ()) -> None:
        self._prefix = prefix
        self._taken: list[int] = []
        self.weight = 1.0
        self.forks: list[tuple[int, ...]] = []

    @property
    def finished(self) -> bool:
        """Whether all recorded decisions were taken."""
        return len(self._taken) >= len(self._prefix)

    def branch(self, weights: Sequence[float]) -> int:
        """Choose an option in proportion to ``weights``; its index.

        Raises:
            EnumerationError: the weights are invalid, or differ from those of the previous replay.
        """
        total = math.fsum(weights)
        if not (0 < total < math.inf and min(weights) >= 0):
            raise EnumerationError(f"a choice was asked for among weights {list(weights)}")
        step = len(self._taken)
        if step < len(self._prefix):
            chosen = self._prefix[step]
            if chosen >= len(weights) or not weights[chosen] > 0:
                raise EnumerationError("equal decisions led to different questions")
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
        run: the process, for several starts at once with a tape each. A start occurs once for each
            of its outcomes.
        starts: where to begin.
        most: limit on the outcomes of all starts together.

    Raises:
        TooManyOutcomesError: there are more than ``most``.
        EnumerationError: the process is random elsewhere: the probabilities of a start do not add
            up to 1.
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
                raise EnumerationError("equal decisions led to fewer questions")
            found[i].append((result, tape.weight))
            waiting += [(i, fork) for fork in tape.forks]
        done += len(batch)
        if done + len(waiting) > most:
            raise TooManyOutcomesError(f"there are more than {most} outcomes: allow fewer nodes")
    for outcomes in found:
        total = math.fsum(weight for _, weight in outcomes)
        if abs(total - 1) > SLACK:
            raise EnumerationError(f"the outcomes' probabilities add up to {total}, not to 1")
    return found


class TapeNoise:
    """A step's noise, decided by a tape.

    Implements :class:`draftwood.protocols.Noise` and :class:`draftwood.protocols.DraftNoise`. A
    decision is refused where a request's noise would reuse a random number.
    """

    __slots__ = ("_chosen", "_drawn", "_tape", "_tested")

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._drawn: set[int] = set()
        self._tested: set[int] = set()
        self._chosen: set[int] = set()

    def draft(self, lane: int) -> np.random.Generator:
        """Random numbers for a policy, which cannot be enumerated.

        Raises:
            EnumerationError: always.
        """
        raise EnumerationError(
            f"numbers for node {lane} were drawn outside a drafter: they cannot be enumerated"
        )

    def exponentials(
        self,
        depths: Sequence[int],
        size: int,
        device: torch.device,  # noqa: ARG002
    ) -> torch.Tensor:
        """Random numbers of a token that is not drawn yet, which cannot be enumerated.

        Raises:
            EnumerationError: always.
        """
        raise EnumerationError(
            f"the numbers of {size} tokens after depths {[*depths]} were asked for outside a "
            "drafter: they cannot be enumerated"
        )

    def sample(self, node: int) -> Tape:
        """The tape for the children that one query samples below ``node``.

        Raises:
            EnumerationError: they were sampled before, with the same numbers.
        """
        if node in self._drawn:
            raise EnumerationError(
                f"children of node {node} are sampled in two queries, which draw the same numbers"
            )
        self._drawn.add(node)
        return self._tape

    def accepts(self, node: int, probability: float) -> bool:
        """True with this probability, clipped to [0, 1]; NaN is 0.

        Raises:
            EnumerationError: the node was tested before.
        """
        if node in self._tested:
            raise EnumerationError(f"node {node} is tested twice, by the same number")
        self._tested.add(node)
        if not 0 < probability < 1:
            return probability > 0
        return self._tape.branch((1 - probability, probability)) == 1

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """An index of ``weights`` ``[V]``, in proportion to them.

        If no weight is positive or some weight is not finite, the choice is certain, as with a
        request's noise. Rounding can cause such weights; the difference of the laws then shows it.

        Raises:
            EnumerationError: a choice was made at this depth before.
        """
        if depth in self._chosen:
            raise EnumerationError(f"two tokens are chosen at depth {depth}, by the same numbers")
        self._chosen.add(depth)
        shares = [max(share, 0.0) for share in weights.tolist()]
        if not 0 < sum(shares) < math.inf:
            return int(weights.argmax())
        return self._tape.branch(shares)

    def settle(self, verdict: Verdict) -> None:
        """End the step with this verdict.

        Raises:
            EnumerationError: a token was chosen at a depth that was not committed; the next step
                would reuse its random numbers.
        """
        deepest = max(self._chosen, default=0)
        if deepest > len(verdict.path):
            raise EnumerationError(
                f"a token was chosen at depth {deepest}, but only {len(verdict.path)} were "
                "accepted: the next step draws the same numbers"
            )
