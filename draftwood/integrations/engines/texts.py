"""Ids of requests by what they say, for an engine that gives none."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = tuple[int, bytes]


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

    Requests that have said the same are alike, so it does not matter which of them goes on.

    Args:
        patience: steps without a text after which it is forgotten.
    """

    def __init__(self, patience: int = 64) -> None:
        self._patience = patience
        self._ids: defaultdict[Key, list[int]] = defaultdict(list)
        self._keys: dict[int, Key] = {}
        self._seen: dict[int, int] = {}
        self._steps = 0
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._keys)

    def recognised(self, texts: Sequence[NDArray[np.int32]], new: Sequence[int]) -> list[Text]:
        """The request of each text of a step.

        Args:
            texts: token ids, the newest last.
            new: tokens of each that the step before has added.
        """
        self._steps += 1
        before = [_key(text[: len(text) - count]) for text, count in zip(texts, new, strict=True)]
        found = []
        for key in before:
            same = self._ids.get(key)
            if same:
                number, known = same.pop(0), key[0]
                if not same:
                    del self._ids[key]
            else:
                number, known = next(self._numbers), 0
            found.append(Text(number, known))
        for each, text in zip(found, texts, strict=True):
            key = self._keys[each.id] = _key(text)
            self._ids[key].append(each.id)
            self._seen[each.id] = self._steps
        return found

    def ended(self) -> list[int]:
        """The requests that were not seen for long; they are forgotten."""
        last = self._steps - self._patience
        old = [number for number, step in self._seen.items() if step <= last]
        for number in old:
            key = self._keys.pop(number)
            self._ids[key].remove(number)
            if not self._ids[key]:
                del self._ids[key]
            del self._seen[number]
        return old


def _key(text: NDArray[np.int32]) -> Key:
    """The length of a text and a digest of it."""
    return len(text), hashlib.blake2b(text.tobytes(), digest_size=16).digest()
