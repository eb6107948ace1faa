"""The drafter of the trie.

Source: SGLang's NGRAM speculative decoding (its documentation; sgl-project/sglang#21052, #20393,
#21225). After each step the last 18 tokens of a request go into a trie that all requests share. A
tree is made of what followed the ends of a request's text there, of every length that occurs.

It differs from SGLang in these points:

* An occurrence of an n-gram counts once. SGLang counts it again in each step whose last 18 tokens
  hold it.
* A request drafts from its own text and from that of finished requests of the same namespace.
  SGLang's trie has that of running ones as well, and no namespaces.
* Beyond ``size`` the text that was finished first is forgotten; SGLang forgets the nodes that were
  used least recently.
* SGLang's suffix automata of given files are left out: the drafter ``datastore`` is for these.

As in SGLang, the prompt is not copied from, except for its last 18 tokens. ``prompt`` adds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

from draftwood.drafters.trie.arrange import (
    Arrange,
    Shape,
    by_frequency,
    by_recency,
    latest,
    merged,
    most_frequent,
)
from draftwood.drafters.trie.index import Place, Text, Texts, count
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    LARGEST_COUNT,
    Branches,
    Continuation,
    Drafter,
    DrafterSpec,
    Host,
    Outcome,
    Prefill,
    setting,
)

_ARRANGE: dict[str, Arrange] = {"recency": by_recency, "frequency": by_frequency}
_CHAINS = 4
"""Most continuations that are offered."""


@dataclass(frozen=True)
class Trie(DrafterSpec):
    """Settings of the trie; the defaults are those of SGLang's documentation.

    Raises:
        DraftwoodError: a setting out of range, or the least breadth above the largest.
    """

    order: Literal["recency", "frequency"] = setting(
        "recency", "which successors come first: the latest (BFS), the most frequent (PROB)"
    )
    depth: int = setting(18, "tokens of the longest n-gram", least=2, most=64)
    least_breadth: int = setting(
        1, "fewest successors of a node, by recency", least=1, most=LARGEST_COUNT
    )
    breadth: int = setting(10, "most successors of a node", least=1, most=LARGEST_COUNT)
    prompt: bool = setting(False, "draft from the whole prompt, too")
    size: int = setting(
        100_000,
        "most tokens of finished requests that are kept, about 5 kB each",
        least=0,
        most=LARGEST_COUNT,
    )

    summary: ClassVar = "a tree of what followed the ends of the text, also in earlier requests"
    remembers: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least_breadth > self.breadth:
            raise DraftwoodError(
                f"least_breadth is {self.least_breadth} and breadth {self.breadth}: give a least "
                "breadth of at most the other"
            )

    def build(self, host: Host) -> TrieDrafter:  # noqa: ARG002
        """A drafter without text."""
        return TrieDrafter(self)


class TrieDrafter(Drafter):
    """Proposes trees, and chains, that continue the text as its ends were continued before.

    The chains begin with what followed the longest ends. The fields of a ``Continuation``:

    * ``tokens``: from the first token on, the first successor of each in ``order``;
    * ``match_length``: tokens of the longest end that was continued so, up to ``depth`` - 1;
    * ``count``: how often that was;
    * ``agreeing``: ends whose first successor begins the chain.

    Memory: up to ``depth`` nodes of about 0.3 kB for each token that is generated, 5 kB in all.
    """

    def __init__(self, settings: Trie) -> None:
        self._settings = settings
        self._shape = Shape(settings.depth, settings.least_breadth, settings.breadth)
        self._running: dict[int, tuple[str, Text]] = {}
        self._finished: dict[str, Texts] = {}
        self._kept: deque[tuple[str, list[int]]] = deque()
        self._size = self._now = 0

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Take the end of the prompt, or all of it, and the first token."""
        prompt, own = prefill.prompt.tolist(), self._settings
        text = Text(own.depth)
        self._running[slot] = prefill.namespace, text
        self._extend(slot, [*(prompt if own.prompt else prompt[-own.depth :]), prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Take the tokens that the step committed."""
        self._extend(slot, outcome.committed)

    def _extend(self, slot: int, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._now += 1
            self._running[slot][1].extend((token,), self._now)

    def cut(self, slot: int, tokens: int) -> None:
        """Leave out what was committed behind the end of the text; its own trie goes anyway."""
        del self._running[slot][1].tokens[-tokens:]

    def release(self, slot: int) -> None:
        """Keep the slot's text for later requests."""
        found = self._running.pop(slot, None)
        if found is None or not self._settings.size:
            return
        namespace, text = found
        tokens = text.tokens[-self._settings.size :]
        self._finished.setdefault(namespace, Texts(self._settings.depth)).add(tokens, self._now)
        self._kept.append((namespace, tokens))
        self._size += len(tokens)
        while self._size > self._settings.size:
            oldest, forgotten = self._kept.popleft()
            self._finished[oldest].remove(forgotten)
            if self._finished[oldest].empty:
                del self._finished[oldest]
            self._size -= len(forgotten)

    def branches(
        self, slots: Sequence[int], queries: Sequence[Branches]
    ) -> list[tuple[tuple[int, ...], ...]]:
        """The nodes of a tree for each slot, each as the tokens on its path, parents first."""
        arrange = _ARRANGE[self._settings.order]
        return [
            merged(self._ends(slot), arrange, self._shape, query.nodes, query.depth)
            for slot, query in zip(slots, queries, strict=True)
        ]

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains for each slot, those of the longest ends first, with distinct first tokens."""
        return [self._chains(self._ends(slot)) for slot in slots]

    def _ends(self, slot: int) -> list[tuple[int, Place]]:
        """Length and n-gram of each end of the text that was continued, the longest first."""
        namespace, text = self._running[slot]
        finished = self._finished.get(namespace)
        found: list[tuple[int, Place]] = []
        for length in range(min(self._settings.depth - 1, len(text.tokens)), 0, -1):
            own = text.end(length)
            other = None if finished is None else finished.find(text.tokens[-length:])
            place = tuple(node for node in (own, other) if node is not None and node.children)
            if place:
                found.append((length, place))
        return found

    def _ordered(self, place: Place, most: int) -> list[tuple[int, Place]]:
        found = latest if self._settings.order == "recency" else most_frequent
        return found(place, most)

    def _chains(self, ends: Sequence[tuple[int, Place]]) -> tuple[Continuation, ...]:
        offered: dict[int, tuple[int, Place]] = {}
        firsts: list[int] = []
        for length, end in ends:
            below = self._ordered(end, _CHAINS)
            firsts.append(below[0][0])
            for token, place in below:
                offered.setdefault(token, (length, place))
        return tuple(
            Continuation(self._followed(token, place), length, count(place), firsts.count(token))
            for token, (length, place) in islice(offered.items(), _CHAINS)
        )

    def _followed(self, token: int, place: Place) -> tuple[int, ...]:
        """A first token and the first successor of each."""
        chain = [token]
        while below := self._ordered(place, 1):
            token, place = below[0]
            chain.append(token)
        return tuple(chain)


PART = Trie
