"""A synthetic language, in which the next token is a hash of the text.

Every row has the same probabilities by rank, a power law of a given entropy. Which token has which
rank, and which rank is drawn, depends on a hash of the text; with ``order`` n the ranking depends
on the last n tokens only, so that texts repeat themselves. All is a pure function of the seed.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Part, setting

_MASK = (1 << 64) - 1
_STEEPEST = 64.0


def mix(a: int, b: int) -> int:
    """Hash of two integers, 64 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = (a * 0x9E3779B97F4A7C15 + b + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def uniform(key: int) -> float:
    """Uniform number in [0, 1) from a hash."""
    return (key >> 11) * 2.0**-53


class State(NamedTuple):
    """A text: its hash, and its last ``order`` tokens."""

    whole: int
    tail: tuple[int, ...] = ()


@dataclass(frozen=True)
class Language(Part):
    """Parameters of a synthetic language.

    ``entropy`` is that of every row. The last ``order`` tokens decide which tokens are likely.

    Raises:
        DraftwoodError: a parameter is out of range, or the entropy impossible.
    """

    vocabulary: int = setting(32000, "Vocabulary size.", least=2)
    entropy: float = setting(2.0, "Bits per token.")
    order: int = setting(
        0, "Number of last tokens that the next one depends on; 0: the whole text.", least=0
    )
    seed: int = setting(0, "Seed of the language.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.entropy <= math.log2(self.vocabulary):
            raise DraftwoodError(
                f"{self.vocabulary} tokens cannot have an entropy of {self.entropy} bits: give "
                f"between 0 and {math.log2(self.vocabulary):.1f}"
            )

    @cached_property
    def profile(self) -> NDArray[np.float64]:
        """Probability by rank, descending, float64 ``[vocabulary]``."""
        logs = np.log(np.arange(1, self.vocabulary + 1))
        low, high = 0.0, _STEEPEST
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _bits(logs, middle) > self.entropy else (low, middle)
        return _profile(logs, high)

    @cached_property
    def _cumulative(self) -> list[float]:
        return list(accumulate(self.profile.tolist()))

    def start(self) -> State:
        """The empty text."""
        return State(mix(self.seed, 0))

    def after(self, state: State, token: int) -> State:
        """The text followed by ``token``."""
        tail = (*state.tail, token)[-self.order :] if self.order else ()
        return State(mix(state.whole, token + 1), tail)

    def next_token(self, state: State) -> int:
        """The target's token after a text."""
        rank = bisect_right(self._cumulative, uniform(mix(state.whole, -1)))
        return self._ranked(state, min(rank, self.vocabulary - 1), 1)[0]

    def row(self, state: State, k: int) -> tuple[list[int], list[float]]:
        """The ``k`` likeliest tokens after a text, and their probabilities."""
        k = min(k, self.vocabulary)
        return self._ranked(state, 0, k), self.profile[:k].tolist()

    def _ranked(self, state: State, first: int, count: int) -> list[int]:
        """Tokens of the ranks ``first`` to ``first + count``."""
        key = state.whole
        if self.order:
            key = mix(self.seed, -2)
            for token in state.tail:
                key = mix(key, token)
        return permuted(key, self.vocabulary, first, count)


def permuted(key: int, size: int, first: int, count: int) -> list[int]:
    """Entries ``first`` to ``first + count`` of the permutation of ``range(size)`` for ``key``.

    The permutation is affine, which is fast to index.
    """
    step = 1 + mix(key, -3) % (size - 1)
    while math.gcd(step, size) > 1:
        step = step % (size - 1) + 1
    start = mix(key, -4) % size
    return [(start + step * i) % size for i in range(first, first + count)]


def _profile(logs: NDArray[np.float64], steepness: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(-steepness * logs)
    total: float = weights.sum()
    return weights / total


def _bits(logs: NDArray[np.float64], steepness: float) -> float:
    p = _profile(logs, steepness)
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())
