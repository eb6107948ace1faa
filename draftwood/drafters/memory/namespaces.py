"""Remembered text of several namespaces, which share a bound and nothing else.

Text that is given, not generated, is everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.memory.store import TextStore
from draftwood.protocols import Continuation

_KEPT = 0.75
"""Share of the bound that is kept when text is forgotten, so that this is seldom."""
_OF_NAMESPACE = 200
"""Tokens whose memory a namespace takes beside its text: 150 to 170 were measured."""

GIVEN = None
"""Stands for the namespace of text that is everybody's."""


class Namespaces:
    """Remembered text. Engines on several threads may share it.

    Args:
        most_tokens: that are remembered, of all namespaces; each namespace beyond the first counts
            as 200 more. Text that was used least recently is forgotten beyond.

    Attributes:
        stores: by namespace.
        most_tokens: see there.
    """

    def __init__(self, most_tokens: int) -> None:
        self.stores: dict[str | None, TextStore] = {}
        self.most_tokens = most_tokens
        # Kept up to date, as a sum over thousands of namespaces would delay every request's end.
        self._own = self._given = 0
        self._now = 0
        self._turn = RLock()

    def add(self, tokens: Sequence[int], namespace: str | None = "") -> list[Sequence[int]]:
        """Remember a text, of one beyond the bound its end; returns the pieces that were new."""
        with self._turn:
            self._now += 1
            store = self.stores.get(namespace) or TextStore()
            before = store.size
            added = store.add(tokens[-self.most_tokens :], self._now)
            if added:
                self.stores[namespace] = store
            self._count(namespace, store.size - before)
            room = self.most_tokens - _OF_NAMESPACE * (len(self.stores) - 1)
            if self.size > room:
                self.forget(int(_KEPT * self.most_tokens))
            return added

    def _count(self, namespace: str | None, tokens: int) -> None:
        if namespace is GIVEN:
            self._given += tokens
        else:
            self._own += tokens

    def continuations(
        self, recent: Sequence[int], namespace: str = "", *, most: int, tokens: int
    ) -> tuple[Continuation, ...]:
        """See :meth:`TextStore.continuations`; of this namespace's text and the given one."""
        with self._turn:
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
        return self._own + self._given

    @property
    def size_of_own(self) -> int:
        """As :attr:`size`, without the text that is everybody's."""
        return self._own

    def pieces(self) -> list[tuple[str, NDArray[np.int32]]]:
        """Copies of the remembered pieces with their namespaces, given text apart.

        The least recently used one comes first.
        """
        with self._turn:
            found = [
                (used, name, piece)
                for name, store in self.stores.items()
                if name is not None
                for used, piece in zip(store.used, store.pieces(), strict=True)
            ]
        return [(name, piece) for _, name, piece in sorted(found, key=lambda each: each[0])]

    def forget(self, most_tokens: int) -> None:
        """Forget the least recently used pieces, until no more tokens are left.

        Namespaces count as in the bound of all.
        """
        with self._turn:
            kept = self._latest(most_tokens)
            for namespace in [*self.stores]:
                store, own = self.stores[namespace], kept.get(namespace)
                before, count = store.size, len(store.starts)
                if own is None:
                    del self.stores[namespace]
                    self._count(namespace, -before)
                elif len(own) < count:
                    store.keep(i in own for i in range(count))
                    self._count(namespace, store.size - before)

    def _latest(self, most_tokens: int) -> dict[str | None, set[int]]:
        """Numbers of the pieces that were used last, by namespace; one at least."""
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
            if kept and namespace not in kept:
                left -= _OF_NAMESPACE
            if left < 0 and kept:
                break
            kept.setdefault(namespace, set()).add(i)
        return kept
