"""A grammar whose legal tokens a function names, in place of a grammar library's."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.grammars.constraint import GrammarConstraint
from draftwood.grammars.matcher import words

Rule = Callable[[tuple[int, ...]], Collection[int]]
"""The legal tokens after those seen so far; -1 among them: the text may end."""


class ToyMatcher:
    """Implements :class:`draftwood.grammars.matcher.Matcher`."""

    def __init__(self, rule: Rule, size: int, seen: Sequence[int] = ()) -> None:
        self.rule = rule
        self.size = size
        self.seen = list(seen)
        self.error = ""
        self.moves = 0

    @property
    def legal(self) -> set[int]:
        return {*self.rule(tuple(self.seen))} if not self.error else set()

    @property
    def accepting(self) -> bool:
        return -1 in self.legal

    @property
    def complete(self) -> bool:
        return self.legal == {-1}

    def accept(self, tokens: Sequence[int]) -> int:
        for place, token in enumerate(tokens):
            assert 0 <= token < self.size
            if token not in self.legal:
                return place
            self.seen.append(token)
            self.moves += 1
        return len(tokens)

    def rollback(self, count: int) -> None:
        assert 0 < count <= len(self.seen)
        del self.seen[-count:]
        self.moves += count

    def bits(self) -> NDArray[np.int64]:
        found = np.zeros(words(self.size), dtype=np.int64)
        for token in self.legal - {-1}:
            found.view(np.uint8)[token // 8] |= 1 << token % 8
        return found

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        return [token in self.legal for token in tokens]

    def forced(self) -> list[int]:
        seen, found = list(self.seen), list[int]()
        while len(legal := self.rule(tuple(seen))) == 1 and -1 not in legal:
            found += legal
            seen += legal
        return found


def toy_constraint(
    rule: Rule, size: int, ends: Collection[int] = (), seen: Sequence[int] = ()
) -> GrammarConstraint:
    """The constraint of a rule over ``size`` tokens, after some tokens."""
    return GrammarConstraint(ToyMatcher(rule, size, seen), size, ends)


def legal_tokens(bits: NDArray[np.int64], size: int) -> set[int]:
    """The tokens whose bits are set."""
    flat = np.unpackbits(bits.view(np.uint8), bitorder="little")[:size]
    return set(np.flatnonzero(flat).tolist())
