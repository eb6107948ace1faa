"""The random decisions of one step, taken by a tape and held to what the real numbers can bear.

Real random numbers are pure functions of what they are keyed by (:mod:`draftwood.noise`): asking
again for the same key gives the same number, which no enumeration of independent decisions would
notice. So whoever asks twice is refused here. Knows nothing of policies and verifiers.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.lossless.tape import ChanceError, Tape
from draftwood.protocols import Verdict


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

    def clocks(self, depth: int, size: int) -> NDArray[np.float64]:
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
