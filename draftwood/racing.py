"""Answers a sampled query: tokens drawn from a draft model's distribution q after some nodes.

A draw is a race: every token gets a clock E ~ Exp(1), which rings at E / q, so that the first to
ring is a draw from q, and the first k, in the order in which they ring, are k draws without
replacement. This is the Gumbel top-k trick (Kool, van Hoof and Welling, *Stochastic Beams and Where
to Find Them*, 2019) with exp(-x) of all its keys. Independent draws are won in races of their own.
As for the target's draws (:mod:`draftwood.noise`), a rounding error in q matters only where two
clocks nearly tie.

Deviation from the usual form: tokens that may not be drawn lose their logits before the softmax and
not their probabilities after it, which is the same q, rounded once.

Knows nothing of models, trees and the accept rule, which may ask later what was drawn from.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.outputs import Outputs
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw


class Draws:
    """What one sequence has drawn in the current step.

    Args:
        outputs: of the draft model.
    """

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._kept: list[torch.Tensor] = []

    def clear(self) -> None:
        """A step ends: its distributions are forgotten."""
        self._kept.clear()

    def draw(self, query: Expand, logits: torch.Tensor) -> Candidates:
        """``k`` tokens after each node, in drawing order, with the numbers that the node has.

        Asking again for a node repeats its draws, or goes on with them if more are asked for.

        Args:
            query: what is asked; it has noise.
            logits: float ``[m, Vd]``, the model's raw logits after each node, to be overwritten.

        Returns:
            Of tokens that cannot be drawn there are none, so a row may hold fewer than ``k``, and
            if it holds any, a handle for :meth:`proposals`, else -1.
        """
        assert query.noise is not None
        q = _distribution(query, logits, self._outputs)
        # HAND-OVER: the race is run on the host, where the numbers come from.
        shares = q.cpu().numpy()
        picks = race(shares, query.k, query.draw, [query.noise.draft(node) for node in query.nodes])
        found = picks >= 0
        drawn = found.any(axis=1)
        handles = np.where(drawn, len(self._kept) + np.cumsum(drawn) - 1, -1)
        self._kept += [q[i] for i in np.flatnonzero(drawn).tolist()]
        chances = np.take_along_axis(shares, np.maximum(picks, 0), axis=1)
        logq = np.full(chances.shape, -np.inf, dtype=np.float32)
        np.log(chances, out=logq, where=found)
        return Candidates(np.where(found, self._outputs.to_target[picks], -1), logq, handles)

    def proposals(self, handles: Sequence[int]) -> torch.Tensor:
        """The q that tokens of this step were drawn from, bit by bit.

        Args:
            handles: ``n``, as answers named them.

        Returns:
            float32 ``[n, V]`` over the target's tokens, on its device.

        Raises:
            DraftwoodError: nothing was drawn in this step under such a handle.
        """
        for handle in handles:
            if not 0 <= handle < len(self._kept):
                raise DraftwoodError(
                    f"nothing was drawn in this step under handle {handle}; ask for the q of "
                    "nodes that were sampled, before their step is committed"
                )
        return self._outputs.over_target([self._kept[handle] for handle in handles])


def _distribution(query: Expand, logits: torch.Tensor, outputs: Outputs) -> torch.Tensor:
    """q, float32 ``[m, Vd]``; not numbers in a row of which nothing is left."""
    scores = logits.float()
    if query.temperature != 1:
        scores /= query.temperature
    if len(outputs.void):
        scores[:, outputs.void] = -torch.inf
    if query.exclude:
        for row, tokens in zip(scores, query.exclude, strict=True):
            row[outputs.of(tokens)] = -torch.inf
    return torch.softmax(scores, dim=-1)


def race(
    q: NDArray[np.float32], k: int, draw: Draw, generators: Sequence[np.random.Generator]
) -> NDArray[np.int64]:
    """The first ``k`` of a race in each row, or the winners of ``k`` races.

    Args:
        q: ``[m, V]``, in proportion to which tokens are drawn; a row of NaN draws nothing.
        k: draws of each row.
        draw: ``IID`` for the winners of ``k`` races, else the first ``k`` of one.
        generators: of each row.

    Returns:
        int64 ``[m, k]``, -1 where no token of positive probability is left.
    """
    rows = np.arange(len(q))
    winners = np.empty((len(q), k), dtype=np.int64)
    # Float64 for two reasons. A float32 exponential comes in steps of about 1e-7, and is zero once
    # in some 1e7: no clock for a token less likely than that. And where q is tiny, as at low
    # temperatures, q / E would be zero, and the next best token would not be drawn as q says.
    speeds = np.empty(q.shape, dtype=np.float64)
    for place in range(k):
        if place == 0 or draw is Draw.IID:
            for row, generator in zip(speeds, generators, strict=True):
                generator.standard_exponential(out=row)
            np.maximum(speeds, np.finfo(np.float64).tiny, out=speeds)
            np.divide(q, speeds, out=speeds)
        best = speeds.argmax(axis=1)
        winners[:, place] = np.where(speeds[rows, best] > 0, best, -1)
        speeds[rows, best] = 0
    return winners
