"""The likeliest tokens of verified rows, as sources that learn from the target read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import TargetOutput


@dataclass(frozen=True, eq=False)
class TopRows:
    """The target's likeliest tokens after some positions.

    Attributes:
        tokens: int64 ``[n, k]``, likeliest first.
        probabilities: float32 ``[n, k]``, of the softmax over the whole vocabulary.
    """

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def output(self, width: int) -> TargetOutput:
        """The rows in the form that drafters read, ``width`` tokens each.

        Where there are fewer, tokens of probability 0 stand for them. An engine keeps the logits
        for itself.
        """
        logits: Any = None
        tokens, probabilities = self.tokens[:, :width], self.probabilities[:, :width]
        rows, found = tokens.shape
        if found < width:
            # Not np.pad, which takes longer than all else in a step.
            tokens, probabilities = np.zeros((rows, width), np.int64), np.zeros((rows, width), "f4")
            tokens[:, :found], probabilities[:, :found] = self.tokens, self.probabilities
        argmax = tokens[:, 0] if width else np.empty(0, dtype=np.int64)
        return TargetOutput(logits, argmax, tokens, probabilities)


_SAID = 0.4
"""Probability that a token which came next is given. On recorded answers it hardly mattered: with a
prepared table 0.2 to 0.9 led to 3.25 to 3.23 tokens a step, without one to the same drafts."""


def rows_of_text(following: Sequence[int], places: Sequence[int], count: int) -> TopRows:
    """Rows of an engine that gives none: the token that came next stands for the likeliest ones.

    Args:
        following: the tokens that came next.
        places: after which rows; nothing is known of the others.
        count: of all rows.
    """
    tokens, probabilities = np.zeros((count, 1), np.int64), np.zeros((count, 1), np.float32)
    tokens[places, 0], probabilities[places, 0] = following, _SAID
    return TopRows(tokens, probabilities)


def no_rows(width: int) -> TopRows:
    """Rows of an engine that does not give them."""
    return TopRows(np.empty((0, width), dtype=np.int64), np.empty((0, width), dtype=np.float32))
