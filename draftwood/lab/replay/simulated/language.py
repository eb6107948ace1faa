"""A made-up language: what its target says after a text is a hash of the text.

Every row has the same shape, tokens ranked by a power law of a chosen entropy; which token has
which rank is drawn anew for every text (or for its last few tokens, so that a text repeats what it
has said), and which of them is taken is drawn for every text. All of it is a pure function of the
seed. Knows nothing of trees.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

_MASK = (1 << 64) - 1
_STEEPEST = 64.0


def mixed(a: int, b: int) -> int:
    """A hash of two integers, 64 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = (a * 0x9E3779B97F4A7C15 + b + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def share(key: int) -> float:
    """A number in [0, 1) made of a hash."""
    return (key >> 11) * 2.0**-53


class State(NamedTuple):
    """A text: a hash of all of it, and its last tokens."""

    whole: int
    tail: tuple[int, ...] = ()


@dataclass(frozen=True)
class Language:
    """See the module.

    Attributes:
        vocabulary: tokens.
        entropy: of every row, in bits.
        order: how many of the last tokens decide which tokens are likely; 0: all of the text.
        seed: of everything.

    Raises:
        DraftwoodError: fewer than 2 tokens, a negative order, or an entropy they cannot have.
    """

    vocabulary: int = field(default=32000, metadata={"help": "tokens of the language"})
    entropy: float = field(default=2.0, metadata={"help": "of every row, in bits"})
    order: int = field(
        default=0,
        metadata={"help": "last tokens that decide which ones are likely; 0: the whole text"},
    )
    seed: int = field(default=0, metadata={"help": "of everything"})

    def __post_init__(self) -> None:
        if self.vocabulary < 2 or self.order < 0:
            raise DraftwoodError(
                f"a language of {self.vocabulary} tokens and order {self.order}: give at least 2 "
                "tokens, and an order of 0 or more"
            )
        if not 0.0 <= self.entropy <= math.log2(self.vocabulary):
            raise DraftwoodError(
                f"{self.vocabulary} tokens cannot have an entropy of {self.entropy} bits: give "
                f"between 0 and {math.log2(self.vocabulary):.1f}"
            )

    @cached_property
    def profile(self) -> NDArray[np.float64]:
        """Probability of each rank, falling, ``[vocabulary]``."""
        logs = np.log(np.arange(1, self.vocabulary + 1))
        low, high = 0.0, _STEEPEST
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _bits(logs, middle) > self.entropy else (low, middle)
        return _profile(logs, high)

    @cached_property
    def _upto(self) -> list[float]:
        return list(accumulate(self.profile.tolist()))

    def start(self) -> State:
        """The empty text."""
        return State(mixed(self.seed, 0))

    def after(self, state: State, token: int) -> State:
        """The text with one more token."""
        tail = (*state.tail, token)[-self.order :] if self.order else ()
        return State(mixed(state.whole, token + 1), tail)

    def taken(self, state: State) -> int:
        """The token that follows a text."""
        rank = bisect_right(self._upto, share(mixed(state.whole, -1)))
        return self._ranked(state, min(rank, self.vocabulary - 1), 1)[0]

    def row(self, state: State, k: int) -> tuple[list[int], list[float]]:
        """The ``k`` likeliest tokens after a text, and their probabilities."""
        k = min(k, self.vocabulary)
        return self._ranked(state, 0, k), self.profile[:k].tolist()

    def _ranked(self, state: State, first: int, count: int) -> list[int]:
        """Tokens of ``count`` ranks."""
        key = state.whole
        if self.order:
            key = mixed(self.seed, -2)
            for token in state.tail:
                key = mixed(key, token)
        return shuffled(key, self.vocabulary, first, count)


def shuffled(key: int, size: int, first: int, count: int) -> list[int]:
    """Entries ``first`` to ``first + count`` of an ordering of ``range(size)`` that the key decides
    (an affine one: quick, and random enough for tokens that mean nothing)."""
    step = 1 + mixed(key, -3) % (size - 1)
    while math.gcd(step, size) > 1:
        step = step % (size - 1) + 1
    start = mixed(key, -4) % size
    return [(start + step * i) % size for i in range(first, first + count)]


def _profile(logs: NDArray[np.float64], steepness: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(-steepness * logs)
    total: float = weights.sum()
    return weights / total


def _bits(logs: NDArray[np.float64], steepness: float) -> float:
    p = _profile(logs, steepness)
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())
