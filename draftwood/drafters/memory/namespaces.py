"""Remembered text of several namespaces, which share a bound and nothing else.

Text that is given, not generated, is everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.memory.store import TextStore
from draftwood.protocols import Continuation

_KEPT = 0.75
"""Share of the bound that is kept when text is forgotten, so that this is seldom."""


GIVEN = None
"""Stands for the namespace of text that is everybody's."""


class Namespaces:
    """Remembered text.

    Args:
        most_tokens: that are remembered, of all namespaces. Text that was used least recently is
            forgotten beyond.

    Attributes:
        stores: by namespace.
    """

    def __init__(self, most_tokens: int) -> None:
        self.stores: dict[str | None, TextStore] = {}
        self.most_tokens = most_tokens
        self._now = 0

    def add(self, tokens: Sequence[int], namespace: str | None = "") -> list[Sequence[int]]:
        """Remember a text, of one beyond the bound its end; returns the pieces that were new."""
        self._now += 1
        store = self.stores.get(namespace) or TextStore()
        added = store.add(tokens[-self.most_tokens :], self._now)
        if added:
            self.stores[namespace] = store
        if self.size > self.most_tokens:
            self.forget(int(_KEPT * self.most_tokens))
        return added

    def continuations(
        self, recent: Sequence[int], namespace: str = "", *, most: int, tokens: int
    ) -> tuple[Continuation, ...]:
        """See :meth:`TextStore.continuations`; of this namespace's text and the given one."""
        stores = [self.stores[each] for each in (namespace, GIVEN) if each in self.stores]
        found = [
            offer
            for store in stores
            for offer in store.continuations(recent, most=most, tokens=tokens, now=self._now)
        ]
        if len(stores) < 2:
            return tuple(found)
        found.sort(key=lambda each: (-each.match_length, -each.count))
        best: dict[int, Continuation] = {}
        for each in found:
            best.setdefault(each.tokens[0], each)
        return tuple(islice(best.values(), most))

    @property
    def size(self) -> int:
        """Tokens that are remembered."""
        return sum(store.size for store in self.stores.values())

    @property
    def size_of_own(self) -> int:
        """As :attr:`size`, without the text that is everybody's."""
        return sum(store.size for name, store in self.stores.items() if name is not GIVEN)

    def pieces(self) -> list[tuple[str, NDArray[np.int32]]]:
        """Copies of the remembered pieces with their namespaces, given text apart.

        The least recently used one comes first.
        """
        found = [
            (used, name, piece)
            for name, store in self.stores.items()
            if name is not None
            for used, piece in zip(store.used, store.pieces(), strict=True)
        ]
        return [(name, piece) for _, name, piece in sorted(found, key=lambda each: each[0])]

    def forget(self, most_tokens: int) -> None:
        """Forget the least recently used pieces, until no more tokens are left."""
        pieces = [
            (used, size, namespace, i)
            for namespace, store in self.stores.items()
            for i, (used, size) in enumerate(zip(store.used, store.sizes, strict=True))
        ]
        pieces.sort(key=lambda each: each[0], reverse=True)
        kept: dict[str | None, set[int]] = {}
        left = most_tokens
        for _, size, namespace, i in pieces:
            left -= size
            if left < 0 and kept:
                break
            kept.setdefault(namespace, set()).add(i)
        for namespace in [*self.stores]:
            own = kept.get(namespace)
            if own is None:
                del self.stores[namespace]
            elif len(own) < len(self.stores[namespace].starts):
                count = len(self.stores[namespace].starts)
                self.stores[namespace].keep(i in own for i in range(count))
