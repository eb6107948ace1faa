"""A request's constraint: a matcher that is moved along the paths of a tree.

There is one matcher for a request. It is moved from one path to the next by taking tokens back as
far as the paths differ, so that siblings and rejected nodes leave no trace.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError, GrammarError
from draftwood.grammars.compilers import compiler_of
from draftwood.grammars.grammar import Grammar
from draftwood.grammars.matcher import Matcher, allow, words
from draftwood.tree import common_prefix


class GrammarConstraint:
    """Implements :class:`draftwood.protocols.Constraint`.

    A token that ends the sequence is legal where the text may end, and nowhere else.

    Args:
        matcher: at the beginning of the text.
        size: the model's rows of logits.
        ends: tokens that end the sequence.
    """

    def __init__(self, matcher: Matcher, size: int, ends: Collection[int]) -> None:
        self._matcher = matcher
        self._size = size
        self._ends = frozenset(ends)
        self._path: list[int] = []  # of the matcher, behind the committed tokens
        self._ended = False

    @property
    def error(self) -> str:
        """See :class:`draftwood.protocols.Constraint`."""
        return self._matcher.error

    def bits(self, path: Sequence[int]) -> NDArray[np.int64]:
        """See :class:`draftwood.protocols.Constraint`."""
        if not self._at(path):
            return np.full(words(self._size), -1)
        found = self._matcher.bits()
        allow(found, self._ends, legal=self._matcher.accepting)
        return found

    def allows(self, path: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """See :class:`draftwood.protocols.Constraint`."""
        if not self._at(path):
            return [False] * len(tokens)
        ordinary = [token for token in tokens if self._ordinary(token)]
        legal = dict(zip(ordinary, self._matcher.allows(ordinary), strict=True))
        if not self._ends.isdisjoint(tokens):
            legal |= dict.fromkeys(self._ends, self._matcher.accepting)
        return [legal.get(token, False) for token in tokens]

    def legal_length(self, tokens: Sequence[int]) -> int:
        """See :class:`draftwood.protocols.Constraint`."""
        if self._ended:
            return 0
        end = next((i for i, t in enumerate(tokens) if not self._ordinary(t)), len(tokens))
        whole = self._at(tokens[:end])
        found = len(self._path)
        if whole and end < len(tokens) and tokens[end] in self._ends and self._matcher.accepting:
            found += 1
        return found

    def forced(self) -> tuple[int, ...]:
        """See :class:`draftwood.protocols.Constraint`."""
        if not self._at(()):
            return ()
        found = self._matcher.forced()
        found = found[: self.legal_length(found)]
        if len(self._ends) == 1 and self._at(found) and self._matcher.complete:
            found += self._ends
        return tuple(found)

    def advance(self, tokens: Sequence[int]) -> None:
        """See :class:`draftwood.protocols.Constraint`."""
        end = next((i for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        if not self._at(tokens[:end]) and not self._ended:
            if error := self.error:
                raise GrammarError(f"the text cannot go on: {error}")
            wrong = tokens[len(self._path)]
            raise DraftwoodError(
                f"token {wrong} was chosen, which the grammar does not allow: a logits processor "
                "overrides the grammar; leave one of them out"
            )
        self._path = []
        self._ended = self._ended or end < len(tokens)

    def _ordinary(self, token: int) -> bool:
        return 0 <= token < self._size and token not in self._ends

    def _at(self, path: Sequence[int]) -> bool:
        """Move the matcher to a path; False if it is not legal, or behind an end.

        The matcher is then at the longest part of the path that is legal.
        """
        if self._ended:
            return False
        known = self._path
        common = common_prefix(known, path)
        if common < len(known):
            self._matcher.rollback(len(known) - common)
            del known[common:]
        further = path[common:]
        count = next((i for i, t in enumerate(further) if not self._ordinary(t)), len(further))
        taken = self._matcher.accept(further[:count])
        known += further[:taken]
        return taken == len(further)


def constraint_of(
    grammar: Grammar,
    tokenizer: PreTrainedTokenizerBase | None,
    size: int,
    ends: Collection[int],
) -> GrammarConstraint:
    """The constraint of a request that begins.

    Args:
        grammar: of its text.
        tokenizer: the model's.
        size: the model's rows of logits.
        ends: tokens that end the sequence.

    Raises:
        DraftwoodError: the grammar cannot be compiled, its library is not installed, or there is no
            tokenizer or no end.
    """
    if not isinstance(grammar, Grammar):
        raise DraftwoodError(
            f"grammar is {type(grammar).__name__}: give a draftwood.Grammar, such as "
            "draftwood.Grammar.json_schema(...)"
        )
    if tokenizer is None:
        raise DraftwoodError("a grammar needs the model's tokenizer: give tokenizer=...")
    if not any(0 <= end < size for end in ends):
        raise DraftwoodError(
            "a text with a grammar ends with an end-of-sequence token, and this request has none: "
            "give eos (eos_token_id in generate)"
        )
    matcher = compiler_of(tokenizer, grammar.backend, size).start(grammar)
    return GrammarConstraint(matcher, size, [end for end in ends if 0 <= end < size])
