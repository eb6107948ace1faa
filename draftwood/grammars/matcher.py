"""What a grammar library gives: a compiler for a tokenizer, and matchers of its grammars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.grammars.grammar import Grammar


class Matcher(Protocol):
    """A grammar after some tokens.

    Tokens that end a sequence are the request's own business: no matcher is given one, or allows
    one.
    """

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the text must end here."""
        ...

    @property
    def error(self) -> str:
        """Why the matcher allows nothing any more, such as a limit; empty: it is sound."""
        ...

    def accept(self, tokens: Sequence[int]) -> int:
        """Move on along tokens of the vocabulary, up to one that is not legal; how many were."""
        ...

    def rollback(self, count: int) -> None:
        """Take the last tokens back."""
        ...

    def bits(self) -> NDArray[np.int64]:
        """The legal tokens, as in :meth:`draftwood.protocols.Constraint.bits`; a fresh array."""
        ...

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """Whether each token of the vocabulary is legal next."""
        ...

    def forced(self) -> list[int]:
        """Tokens of the text that must come next, as the tokenizer would spell it."""
        ...


class Compiler(Protocol):
    """Compiles grammars for one tokenizer."""

    def start(self, grammar: Grammar) -> Matcher:
        """A matcher at the beginning of a text.

        Raises:
            DraftwoodError: the grammar is wrong, or not supported; the message says where.
        """
        ...


def words(size: int) -> int:
    """How many numbers hold a bit for each token of a vocabulary."""
    return -(-size // 64)


def allow(bits: NDArray[np.int64], tokens: Iterable[int], *, legal: bool) -> None:
    """Set the bits of some tokens."""
    numbers = bits.view(np.uint8)
    for token in tokens:
        bit = 1 << token % 8
        numbers[token // 8] = numbers[token // 8] & (0xFF ^ bit) | (bit if legal else 0)
