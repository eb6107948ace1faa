"""The drafter of the datastore, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

import numpy as np

from draftwood.drafters._texts import check_texts, encoded_files
from draftwood.drafters.datastore.suffix_array import DEEPEST, LONGEST, Datastore, Occurrences
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    LARGEST_COUNT,
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Evidence,
    Expand,
    Feature,
    Host,
    Outcome,
    Prefill,
    setting,
)
from draftwood.tree import ROOT, Draw, TreeBuilder


@dataclass(frozen=True)
class DatastoreText(DrafterSpec):
    """Settings of the datastore.

    Raises:
        DraftwoodError: a bound out of range, or a text that does not exist.
    """

    text: tuple[str, ...] = setting((), "files, and folders of files, to draft from")
    size: int = setting(10_000_000, "most tokens of these files", least=1, most=LARGEST_COUNT)
    longest: int = setting(
        LONGEST, "longest suffix that is looked up, in tokens", least=1, most=LONGEST
    )
    max_continuations: int = setting(
        4,
        "most continuations, with distinct first tokens, to offer as chains",
        least=1,
        most=LARGEST_COUNT,
    )

    summary: ClassVar = "what followed the end of the text in given files, by frequency"
    evidence: ClassVar = Evidence(
        ranked=(Feature("rank", (1, 2)), Feature("score", (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.85)))
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_texts(self.text)  # before a model is loaded for them

    @property
    def missing(self) -> str:
        """``text``, unless it is given."""
        return "" if self.text else "text"

    def build(self, host: Host) -> DatastoreDrafter:
        """A drafter from these files; those of a host that name the same files share the index.

        Raises:
            DraftwoodError: no text is given, it cannot be read, has too many tokens or none, or
                there is no tokenizer to encode it.
        """
        if self.missing:
            raise DraftwoodError(
                "the datastore has no text: name files or folders with its setting text, joined by "
                "'+'"
            )
        store = host.share(("datastore", self.text), lambda: self._indexed(host))
        self._check(store.tokens)
        return DatastoreDrafter(self, store)

    def _indexed(self, host: Host) -> Datastore:
        texts = list(encoded_files(self.text, host.encode))
        self._check(sum(map(len, texts)))
        return Datastore(texts)

    def _check(self, tokens: int) -> None:
        if not 0 < tokens <= self.size:
            raise DraftwoodError(
                f"{' and '.join(self.text)} have {tokens} tokens, and the datastore takes 1 to "
                f"{self.size}: give other files, or another size"
            )


class DatastoreDrafter(Drafter):
    """Ranks successors, and proposes chains, by how often they followed in the datastore.

    Occurrences of one suffix of the text serve the whole tree of a step. The successors of a node
    are those of the occurrences that continue as its path; a successor's score is its share of
    them. Nodes below depth 16 have none. Of more than 4096 occurrences, that many are looked at.
    The fields of a ``Continuation``:

    * ``tokens``: from the first token on, the most frequent successor of each;
    * ``match_length``: tokens of the suffix, up to ``longest``;
    * ``count``: occurrences that are looked at and continue with the first token;
    * ``agreeing``: 1 for the preferred one, as one length is looked up, and 0 for others.

    Memory: 8 bytes per token of text, and 80 while the index is built.
    """

    def __init__(self, settings: DatastoreText, store: Datastore) -> None:
        self._settings = settings
        self._store = store
        self._texts: dict[int, _Lookup] = {}

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Take the end of the prompt and the first token."""
        self._texts[slot] = _Lookup()
        self._take(slot, [*prefill.prompt[-LONGEST:].tolist(), prefill.first])

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Take the tokens that the step committed."""
        self._take(slot, outcome.committed)

    def _take(self, slot: int, tokens: Sequence[int]) -> None:
        self._texts[slot] = _Lookup([*self._texts[slot].recent, *tokens][-LONGEST:])

    def release(self, slot: int) -> None:
        """Forget the slot's text."""
        self._texts.pop(slot, None)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains of the most frequent successors, the one that begins with the most frequent first.

        They begin with the ``max_continuations`` most frequent successors of the text.
        """
        return [self._chains(self._occurrences(slot)) for slot in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` most frequent successors of each node.

        Raises:
            DraftwoodError: a query asks for sampled children.
        """
        return [self._ranked(slot, query) for slot, query in zip(slots, queries, strict=True)]

    def _occurrences(self, slot: int) -> Occurrences:
        state = self._texts[slot]
        if state.found is None:
            state.found = self._store.find(state.recent, self._settings.longest)
        return state.found

    def _chains(self, found: Occurrences) -> tuple[Continuation, ...]:
        whole = 0, len(found.places)
        tokens, counts = found.successors(*whole, 0)
        firsts = zip(tokens.tolist(), counts.tolist(), strict=True)
        return tuple(
            Continuation(_likeliest(found, token), found.match, count, int(rank == 0))
            for rank, (token, count) in enumerate(islice(firsts, self._settings.max_continuations))
        )

    def _ranked(self, slot: int, query: Expand) -> Candidates:
        if query.draw is not Draw.ONE_HOT:
            raise DraftwoodError("the datastore only ranks successors; ask it for one-hot children")
        occurrences, ranges = self._occurrences(slot), self._texts[slot]
        found = Candidates.none(query)
        excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
        for i, (node, exclude) in enumerate(zip(query.nodes, excludes, strict=True)):
            begin, end = ranges.of(query.tree, node)
            tokens, counts = occurrences.successors(begin, end, query.tree.depths[node])
            if exclude:
                allowed = ~np.isin(tokens, list(exclude))
                tokens, counts = tokens[allowed], counts[allowed]
            n = min(query.k, len(tokens))
            found.tokens[i, :n] = tokens[:n]
            found.logq[i, :n] = np.log(counts[:n] / (end - begin))
        return found


def _likeliest(found: Occurrences, first: int) -> tuple[int, ...]:
    """A first token and the most frequent successors after it."""
    chain, (begin, end), token = [first], (0, len(found.places)), first
    while len(chain) < DEEPEST:
        begin, end = found.narrowed(begin, end, len(chain) - 1, token)
        tokens, _ = found.successors(begin, end, len(chain))
        if not len(tokens):
            break
        token = int(tokens[0])
        chain.append(token)
    return tuple(chain)


@dataclass
class _Lookup:
    """The end of a text, and what was looked up of it in the present step.

    Attributes:
        recent: the last tokens.
        found: occurrences of their longest suffix, once it was looked up.
        tree: the tree that is growing.
        ranges: of its nodes, the occurrences that continue as the node's path.
    """

    recent: list[int] = field(default_factory=list)
    found: Occurrences | None = None
    tree: TreeBuilder | None = None
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)

    def of(self, tree: TreeBuilder, node: int) -> tuple[int, int]:
        """The occurrences that continue as a node's path; they were looked up before."""
        assert self.found is not None
        if tree.depths[node] > DEEPEST:
            return 0, 0
        if tree is not self.tree:
            self.tree, self.ranges = tree, {ROOT: (0, len(self.found.places))}
        if node not in self.ranges:
            parent = tree.parents[node]
            above = self.of(tree, parent)
            token, depth = tree.tokens[node], tree.depths[parent]
            self.ranges[node] = self.found.narrowed(*above, depth, token)
        return self.ranges[node]


PART = DatastoreText
