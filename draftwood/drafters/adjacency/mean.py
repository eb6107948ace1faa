"""The mean of two estimates of the successors of each key."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Tokens ``[n, width]``, likeliest first, -1 where there is no further one, and natural logs of
their probabilities, -inf there."""


def mean(first: Rows, second: Rows) -> Rows:
    """The likeliest successors by the mean of their probabilities in two rows of equal width.

    A row without successors says nothing: the other one is the answer then. Of equal means, those
    of the first row come first.
    """
    none = first[0][:, :1] < 0
    tokens, logq = (np.where(none, b, a) for a, b in zip(first, second, strict=True))
    both = np.flatnonzero(~none[:, 0] & (second[0][:, 0] >= 0))
    if len(both):
        (a, a_logq), (b, b_logq) = ((t[both], q[both]) for t, q in (first, second))
        half = np.float32(0.5)
        tokens[both], logq[both] = _merged(a, np.exp(a_logq) * half, b, np.exp(b_logq) * half)
    return tokens, logq


def _merged(
    tokens: NDArray[np.int32],
    probs: NDArray[np.float32],
    others: NDArray[np.int32],
    other_probs: NDArray[np.float32],
) -> Rows:
    """The likeliest of both rows, a token's probabilities added."""
    width = tokens.shape[1]
    same = tokens[:, :, None] == others[:, None, :]
    probs = probs + np.where(same, other_probs[:, None, :], 0).sum(axis=2)
    other_probs = np.where(same.any(axis=1), 0, other_probs)
    every, total = np.hstack([tokens, others]), np.hstack([probs, other_probs])
    order = np.argsort(-total, axis=1, kind="stable")[:, :width]
    total = np.take_along_axis(total, order, axis=1)
    there = total > 0
    logq = np.full(total.shape, -np.inf, dtype=np.float32)
    np.log(total, out=logq, where=there)
    return np.where(there, np.take_along_axis(every, order, axis=1), -1), logq
