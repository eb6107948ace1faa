"""Ids of requests by what they say, for an engine that gives none."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = tuple[int, bytes]

_END = 32
"""Last tokens of a text by which those that may be the same are found."""

PATIENCE = 4
"""Steps without a text after which it is forgotten, where all requests take part in a step."""

_MOST_MISSED = 64
"""Most tokens by which a text may have grown in steps that the engine left out."""


@dataclass(frozen=True)
class Text:
    """A text that was recognised.

    Attributes:
        id: of its request.
        known: tokens at its beginning that were seen before; 0: it is new.
    """

    id: int
    known: int


class TextIds:
    """Recognises each text by all that it said one step ago.

    Requests that have said the same are alike, so it does not matter which of them goes on. Texts
    are kept and compared whole. Of texts of 4,000 tokens that takes a fifth of the time of a
    digest, or less.

    An engine may leave out some steps, as vLLM does while a request is near the end of the context:
    a text that goes on from one that is known, by a few tokens more, is recognised then. One that
    comes back after it was forgotten is read anew, which takes 0.1 seconds for 32,000 tokens.

    Args:
        patience: steps without a text after which it is forgotten. A running request misses a step
            only if the engine has no room for it.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._ids: defaultdict[Key, list[int]] = defaultdict(list)
        self._texts: dict[int, _GrowingText] = {}
        self._seen: dict[int, int] = {}
        self._steps = 0
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._texts)

    def recognised(self, texts: Sequence[NDArray[np.int32]], new: Sequence[int]) -> list[Text]:
        """The request of each text of a step.

        Args:
            texts: token ids, the newest last.
            new: tokens of each that the step before has added.
        """
        self._steps += 1
        before = [text[: len(text) - count] for text, count in zip(texts, new, strict=True)]
        exact = [self._taken(text) for text in before]
        found = [
            own or self._continued(text) or Text(next(self._numbers), 0)
            for own, text in zip(exact, before, strict=True)
        ]
        for each, text in zip(found, texts, strict=True):
            if each.known:
                self._texts[each.id].extend(text[each.known :])
            else:
                self._texts[each.id] = _GrowingText(text)
            self._ids[_key(text)].append(each.id)
            self._seen[each.id] = self._steps
        return found

    def ended(self) -> list[int]:
        """The requests that were not seen for long; they are forgotten."""
        last = self._steps - self._patience
        old = [number for number, step in self._seen.items() if step <= last]
        for number in old:
            self._remove(_key(self._texts.pop(number).tokens), number)
            del self._seen[number]
        return old

    def _taken(self, text: NDArray[np.int32]) -> Text | None:
        """A request that has said this, which no other text gets then; None without any."""
        key = _key(text)
        for number in self._ids.get(key, ()):
            if np.array_equal(self._texts[number].tokens, text):
                self._remove(key, number)
                return Text(number, len(text))
        return None

    def _continued(self, text: NDArray[np.int32]) -> Text | None:
        """The same of a request that has said all of this but a few tokens.

        Of several, the one that has said most.
        """
        for length in range(len(text) - 1, max(0, len(text) - 1 - _MOST_MISSED), -1):
            if found := self._taken(text[:length]):
                return found
        return None

    def _remove(self, key: Key, number: int) -> None:
        self._ids[key].remove(number)
        if not self._ids[key]:
            del self._ids[key]


class _GrowingText:
    """A copy of a text, to which tokens are added."""

    def __init__(self, tokens: NDArray[np.int32]) -> None:
        self._buffer, self._length = tokens.copy(), len(tokens)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All of them, as a view."""
        return self._buffer[: self._length]

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Add tokens at the end."""
        end = self._length + len(tokens)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), dtype=np.int32)
            grown[: self._length] = self.tokens
            self._buffer = grown
        self._buffer[self._length : end] = tokens
        self._length = end


def _key(text: NDArray[np.int32]) -> Key:
    """The length of a text and its last tokens."""
    return len(text), text[-_END:].tobytes()
