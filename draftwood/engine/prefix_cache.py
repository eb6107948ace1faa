"""Keys and values of finished texts, for later prompts that begin in the same way.

A text is kept whole, as a copy of its own length outside of the running requests' cache. The texts
used least recently make room for others.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.engine.token_rows import rows_bytes
from draftwood.protocols import SavedTokens, TargetOutput, snapshot_bytes

SHORTEST = 16
"""Tokens below which a common prefix is computed again: as cheap as copying it."""

_TEXTS = 1024
"""Most texts, however short."""

_ALIKE = 64
"""Most texts with the same first tokens: a prompt that begins so is compared with all of them."""


@dataclass(frozen=True, eq=False)
class Prefix:
    """A text with its keys and values.

    Attributes:
        tokens: int64 ``[n]``.
        saved: keys and values of these.
        rows: output of the target at these, if drafters need it.
    """

    tokens: NDArray[np.int64]
    saved: SavedTokens
    rows: TargetOutput | None

    @property
    def bytes(self) -> int:
        """Bytes that the text takes."""
        rows = 0 if self.rows is None else rows_bytes(self.rows)
        return self.tokens.nbytes + self.saved.bytes + rows


class PrefixCache:
    """The kept texts, by namespace and first tokens.

    Args:
        most: bytes of all texts.

    Attributes:
        bytes: of the texts that are kept. Texts that begin alike share snapshots of recurrent
            states, which count once.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def longest(
        self, ids: Sequence[int] | NDArray[np.int64], namespace: str
    ) -> tuple[Prefix | None, int]:
        """The kept text of which the most first tokens of ``ids`` can be taken, and how many.

        It counts as used. None and 0 if no text begins with the first :data:`SHORTEST` of them, or
        none of those that do can be taken.
        """
        given = np.asarray(ids, dtype=np.int64)
        alike = self._alike.get(_key(given, namespace), ())
        if not alike:
            return None, 0
        texts = [self._kept[number] for number in alike]
        shared = [text.saved.restorable(common(text.tokens, given)) for text in texts]
        best = int(np.argmax(shared))
        if shared[best] < SHORTEST:
            return None, 0
        self._kept.move_to_end(alike[best])
        return texts[best], shared[best]

    def add(self, prefix: Prefix, namespace: str) -> None:
        """Keep a text, in the place of those that it continues and can stand for.

        A text that is too short, or takes more than all bytes, is not kept.
        """
        if len(prefix.tokens) < SHORTEST or prefix.bytes > self.most:
            return
        key = _key(prefix.tokens, namespace)
        for number in [*self._alike.get(key, ())]:
            old = self._kept[number]
            known = old.saved.states or ()
            if common(old.tokens, prefix.tokens) == len(old.tokens) and all(
                prefix.saved.restorable(length) == length for length in known
            ):
                self._drop(number)
        self.bytes += prefix.bytes
        for snapshot in (prefix.saved.states or {}).values():
            if self._holders[id(snapshot)]:
                self.bytes -= snapshot_bytes(snapshot)
            self._holders[id(snapshot)] += 1
        self._kept[self._count] = prefix
        self._keys[self._count] = key
        alike = self._alike.setdefault(key, [])
        alike.append(self._count)
        self._count += 1
        if len(alike) > _ALIKE:
            self._drop(next(number for number in self._kept if self._keys[number] == key))
        if len(self._kept) > _TEXTS:
            self._drop(next(iter(self._kept)))
        self.make_room(0)

    def make_room(self, size: int) -> None:
        """Drop texts, so that another one of so many bytes fits."""
        while self._kept and self.bytes + size > self.most:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Drop all texts, whatever an interrupt has left of them."""
        self.bytes = 0
        self._kept: OrderedDict[int, Prefix] = OrderedDict()
        self._alike: dict[tuple[str, bytes], list[int]] = {}
        self._keys: dict[int, tuple[str, bytes]] = {}
        self._count = 0
        self._holders: Counter[int] = Counter()

    def _drop(self, number: int) -> None:
        dropped = self._kept.pop(number)
        self.bytes -= dropped.bytes
        for snapshot in (dropped.saved.states or {}).values():
            self._holders[id(snapshot)] -= 1
            if self._holders[id(snapshot)]:
                self.bytes += snapshot_bytes(snapshot)
            else:
                del self._holders[id(snapshot)]
        key = self._keys.pop(number)
        self._alike[key].remove(number)
        if not self._alike[key]:
            del self._alike[key]


def common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many first tokens two texts share."""
    n = min(len(one), len(other))
    different = one[:n] != other[:n]
    return int(different.argmax()) if different.any() else n


def _key(tokens: NDArray[np.int64], namespace: str) -> tuple[str, bytes]:
    return namespace, tokens[:SHORTEST].tobytes()
