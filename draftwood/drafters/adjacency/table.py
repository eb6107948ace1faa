"""A prepared adjacency table: successors of pairs of tokens and of single tokens, never changed.

A key is one integer: a pair (before, token) is ``before * V + token`` for a vocabulary of ``V``,
and a token alone is ``V * V + token``. Keys are sorted; the successors of a key are a run of one
long array. A probability is stored as a code: -ln p in steps of 1/32, rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.native import NativeTable
from draftwood.errors import DraftwoodError
from draftwood.files import Count
from draftwood.protocols import Fingerprint

Unsigned = NDArray[np.unsignedinteger[Any]]

UNKNOWN = -1
"""Row of a key that the table lacks."""

_STEPS = 32
_LOGQ: NDArray[np.float32] = -np.arange(256, dtype=np.float32) / np.float32(_STEPS)
LEAST_PROBABILITY = float(np.exp(_LOGQ[-1]))
"""The smallest probability that a code stands for."""


@dataclass(frozen=True)
class TextFile:
    """A file that a table was harvested from: its name, SHA-256 and number of documents."""

    name: str
    sha256: str
    documents: Count


@dataclass(frozen=True)
class Facts:
    """What a table is of.

    Attributes:
        vocab_size: of the model.
        width: most successors of a key.
        model: name of the model.
        dtype: of its weights when the text was read.
        vocabulary: digest of the tokens and their ids, see
            :func:`draftwood.models.vocabulary_digest`.
        fingerprint: of the model's weights; None if they could not be read.
        text: the files, in order of their SHA-256.
        tokens: tokens read.
        settings: settings of ``draftwood harvest``, by name.
    """

    vocab_size: Count
    width: Count
    model: str
    dtype: str
    vocabulary: str
    fingerprint: Fingerprint | None
    text: tuple[TextFile, ...]
    tokens: Count
    settings: dict[str, int | float | None]


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table and what it is of.

    Attributes:
        facts: see there.
        keys: ascending, uint32 or uint64 ``[n]``.
        lengths: number of successors of each key, uint8 ``[n]``.
        tokens: successors, likeliest first, uint16 or uint32 ``[sum(lengths)]``.
        codes: of their probabilities, uint8 ``[sum(lengths)]``.

    Raises:
        DraftwoodError: there is no key, or the arrays do not fit one another.
    """

    facts: Facts
    keys: Unsigned
    lengths: NDArray[np.uint8]
    tokens: Unsigned
    codes: NDArray[np.uint8]

    def __post_init__(self) -> None:
        size = self.facts.vocab_size
        right = (
            self.keys.dtype == key_dtype(size)
            and self.tokens.dtype == token_dtype(size)
            and self.lengths.dtype == self.codes.dtype == np.uint8
            and 0 < len(self.keys) == len(self.lengths)
            and len(self.tokens) == len(self.codes) == int(self.lengths.sum(dtype=np.int64))
            and bool((self.keys[1:] > self.keys[:-1]).all())
            and int(self.keys[-1]) < size * (size + 1)
            and int(self.lengths.min()) > 0
            and int(self.lengths.max()) <= self.facts.width
            and int(self.tokens.max()) < size
        )
        if not right:
            raise DraftwoodError("its arrays do not fit one another")

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @cached_property
    def _lengths(self) -> NDArray[np.uint8]:
        # The further row, counted from the end, is the empty one of unknown keys.
        return np.concatenate([self.lengths, np.zeros(1, dtype=np.uint8)])

    @cached_property
    def native(self) -> NativeTable:
        """The table as compiled functions read it."""
        return NativeTable(self, self._starts, _LOGQ)

    def find(
        self, before: Sequence[int], tokens: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of pairs and of their tokens alone, UNKNOWN where there is none.

        Args:
            before: the token before each one; negative: there is none.
            tokens: the tokens, ``[n]``.

        Returns:
            The row of each pair ``[n]``, which is the token's where none is before it, and the row
            of each token ``[n]``.
        """
        size, count = self.facts.vocab_size, len(tokens)
        high = np.array(before, dtype=np.int64)
        high = np.concatenate([np.where(high < 0, size, high), np.full(count, size)])
        wanted = (high * size + np.tile(np.array(tokens, dtype=np.int64), 2)).astype(
            self.keys.dtype
        )
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        rows = np.where(self.keys[place] == wanted, place, UNKNOWN)
        return rows[:count], rows[count:]

    def successors(
        self, rows: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The ``width`` likeliest successors of each row.

        Returns:
            Tokens, -1 where there is no further one, and natural logs of their probabilities,
            -inf there; both ``[n, width]``.
        """
        rank = np.arange(width)
        missing = rank >= self._lengths[rows][:, None]
        places = self._starts[rows][:, None] + rank
        tokens = self.tokens.take(places, mode="clip").astype(np.int32)
        logq: NDArray[np.float32] = _LOGQ.take(self.codes.take(places, mode="clip"))
        tokens[missing] = -1
        logq[missing] = -np.inf
        return tokens, logq


def key_dtype(vocab_size: int) -> np.dtype[Any]:
    """The dtype of keys."""
    return np.dtype(np.uint32 if vocab_size * (vocab_size + 1) <= 1 << 32 else np.uint64)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The dtype of successors."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def codes_of(probs: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """The codes of probabilities above 0; the smallest ones share the last code."""
    codes = np.clip(np.rint(-np.log(probs) * _STEPS), 0, 255)
    return np.asarray(codes, dtype=np.uint8)
