"""Tiny laws: distributions of a target and its drafters over three tokens, after any prefix.

A seed decides them, in float64. Rows are peaked, flat or have zeros, so that a few laws exercise
every case of an accept rule.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import Continuation

VOCAB = 3

Row: TypeAlias = NDArray[np.float64]
Prefix: TypeAlias = tuple[int, ...]
Law: TypeAlias = Callable[[Prefix], Row]
"""A distribution over tokens after every prefix."""


@dataclass(frozen=True)
class Scene:
    """A target and its drafters.

    Attributes:
        seed: decides all distributions.
        temperature: the request's; 0 for a target that takes the argmax.
        agreeing: whether every drafter's law is the target's.
    """

    seed: int
    temperature: float = 1.0
    agreeing: bool = False

    def p(self, prefix: Prefix) -> Row:
        """The target's distribution after a prefix, at the temperature."""
        row = _row(self.seed, "target", prefix)
        return row if self.temperature > 0 else _one_hot(row)

    def q(self, source: str, prefix: Prefix, temperature: float) -> Row:
        """A drafter's distribution after a prefix, at a temperature above 0."""
        who = "target" if self.agreeing else source
        hot: Row = _row(self.seed, who, prefix) ** (1 / temperature)
        total: float = hot.sum()
        return hot / total

    def copies(self, source: str, prefix: Prefix) -> tuple[Continuation, ...]:
        """Chains of a drafter that copies: one, none, two, or one with a second match."""
        generator = _generator(self.seed, f"{source}'s copies", prefix)
        first, second = generator.permutation(VOCAB)[:2].tolist()
        long = tuple(generator.integers(VOCAB, size=5).tolist())
        return (
            (Continuation((first, *long), 3, 1, 1),),
            (),
            (Continuation((first, *long[:1]), 4, 1, 1), Continuation((second, *long), 2, 1, 1)),
            (Continuation((first, *long), 9, 2, 2),),
        )[self.seed % 4]


def joint(law: Law, prefix: Prefix, length: int) -> Row:
    """Probabilities of all continuations of ``length`` tokens, float64 ``[VOCAB ** length]``.

    They are in the order of the digits of a number, the first token first.
    """
    if not length:
        return np.ones(1)
    row = law(prefix)
    rest = [joint(law, (*prefix, token), length - 1) for token in range(len(row))]
    return np.concatenate([share * part for share, part in zip(row, rest, strict=True)])


def completed(law: Law, beginnings: Iterable[tuple[Prefix, float]], length: int) -> Row:
    """Joint law of the next tokens: a random beginning, continued by ``law``.

    Args:
        law: law of every further token.
        beginnings: tokens with their probabilities; longer ones are cut.
        length: number of tokens.

    Returns:
        Float64 ``[VOCAB ** length]``, ordered as in :func:`joint`.
    """
    vocab = len(law(()))
    rest: dict[Prefix, Row] = {}
    found = np.zeros(vocab**length)
    for whole, probability in beginnings:
        tokens = whole[:length]
        if tokens not in rest:
            rest[tokens] = joint(law, tokens, length - len(tokens))
        width = len(rest[tokens])
        place = sum(token * vocab ** (length - 1 - i) for i, token in enumerate(tokens))
        found[place : place + width] += probability * rest[tokens]
    return found


@lru_cache(maxsize=100_000)
def _row(seed: int, who: str, prefix: Prefix) -> Row:
    generator = _generator(seed, who, prefix)
    row = generator.dirichlet([generator.choice([0.3, 1.0, 4.0])] * VOCAB)
    kind = generator.random()
    if kind < 0.1:
        row = _one_hot(row)
    elif kind < 0.35:
        row[generator.integers(VOCAB)] = 0.0
    row /= row.sum()
    row.setflags(write=False)
    return row


def _one_hot(row: Row) -> Row:
    best = np.zeros_like(row)
    best[row.argmax()] = 1.0
    return best


def _generator(seed: int, who: str, prefix: Prefix) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(who.encode()), *prefix])
