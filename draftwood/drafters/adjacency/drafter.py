"""The drafter of the adjacency table, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import numpy as np

from draftwood.drafters.adjacency.answer import answers
from draftwood.drafters.adjacency.fitting import fitting
from draftwood.drafters.adjacency.live import LiveTable
from draftwood.drafters.adjacency.native import Descents, NativeRows, functions
from draftwood.drafters.adjacency.table import PreparedTable
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    LARGEST_COUNT,
    Candidates,
    Descend,
    Descent,
    Describe,
    Drafter,
    DrafterSpec,
    Evidence,
    Expand,
    Feature,
    Host,
    Needs,
    Outcome,
    Prefill,
    setting,
)

_Query = TypeVar("_Query")
_Answer = TypeVar("_Answer")

_NO_TOKEN = -1  # stands before the first token of a prompt

_SHARED = 8
"""Namespaces whose shared tables are kept; beyond, the table that was begun with least recently is
dropped."""


@dataclass(frozen=True)
class Adjacency(DrafterSpec):
    """Settings of the adjacency table (GOOSE, Table 5).

    Raises:
        DraftwoodError: a setting outside its range.
    """

    width: int = setting(10, "successors stored per key (K)", least=1, most=LARGEST_COUNT)
    min_score: float = setting(
        0.01, "least probability a successor needs to be offered", least=0, below=1
    )
    bigram: bool = setting(True, "look up the last two tokens first; off: the last token only")
    shared: bool = setting(
        False, "one table for all requests of a namespace, not emptied between them"
    )
    max_rows: int = setting(
        65536, "most keys stored; the oldest is dropped first", least=1, most=LARGEST_COUNT
    )
    harvest: Literal["all", "accepted"] = setting(
        "all", "learn from every node of a tree, or from the accepted ones only"
    )
    prompt: bool = setting(
        True, "learn at all positions of the prompt, for which the output layer runs on them too"
    )
    table: str | None = setting(None, "prepared table, a file made by draftwood harvest")

    summary: ClassVar = "tokens that the target ranked after a token before"
    evidence: ClassVar = Evidence(
        ranked=(Feature("rank", (1, 2)), Feature("score", (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.85)))
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Before a model is loaded for it.
        if self.table is not None and not Path(self.table).is_file():
            raise DraftwoodError(
                f"there is no adjacency table {self.table}: 'draftwood harvest' makes one"
            )

    def build(self, host: Host) -> AdjacencyTables:
        """Fresh tables, above the prepared one; ``width`` is cut to the target's vocabulary.

        Raises:
            DraftwoodError: see :func:`draftwood.drafters.adjacency.fitting.fitting`.
        """
        width = min(self.width, host.info.vocab_size)
        prepared = None if self.table is None else fitting(Path(self.table), width, host)
        return AdjacencyTables(self, width, prepared)


class AdjacencyTables(Drafter):
    """Successors of pairs of tokens, in a table per slot or one for all slots of a namespace.

    The top-k of every row of the target's logits is stored: prompt positions (unless ``prompt`` is
    off), accepted nodes, the node of the bonus, and rejected nodes. A node's row gives the
    successors of its pair (its parent's token, its token); the root's parent is the token before
    the anchor. A new row replaces the pair's earlier one; of equal pairs in one step the last node
    counts. A successor's score is its softmax probability; successors below ``min_score`` are
    dropped.

    A token without a known pair uses the pair ending in it that was stored last, which is what a
    separate unigram table would hold. A known pair without successors gives no candidates. With
    ``max_rows`` pairs, a new pair replaces the oldest, and a token whose last pair this was is
    forgotten too.

    A prepared table is never changed, and all slots and engines share it. Its rows are averaged
    with the live ones: see :func:`draftwood.drafters.adjacency.answer.answers`.

    Shared tables are kept for the 8 namespaces that a request was begun in last, and as long as a
    slot uses one.

    Memory: at most ``max_rows * (8 * width + 352)`` bytes per live table and one row: 28 MB at the
    default settings, of which 5 MB are rows; with compiled functions, whose index is smaller, 10
    MB. Memory pages are touched only as rows are stored.
    """

    def __init__(
        self, settings: Adjacency, width: int, prepared: PreparedTable | None = None
    ) -> None:
        self._settings = settings
        self._width = width
        self._prepared = prepared
        self._tables: dict[int, LiveTable] = {}
        self._shared: dict[str, LiveTable] = {}  # the one that was begun with last comes last
        self._before: dict[int, int] = {}
        functions()  # compiled now, rather than for the first request
        self._descents = Descents(None if prepared is None else prepared.native)

    @property
    def needs(self) -> Needs:
        """The ``width`` best tokens of every row, by default the prompt's included."""
        return Needs(top_k=self._width, prompt_rows=self._settings.prompt)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Store the successors at the prompt's positions, as far as the target computed them."""
        table = self._shared_by(prefill.namespace) if self._settings.shared else self._empty()
        self._tables[slot] = table
        prompt, rows = prefill.prompt.tolist(), prefill.rows
        first = len(prompt) - len(rows.top_tokens)
        before = [_NO_TOKEN, *prompt[:-1]]
        table.harvest(before[first:], prompt[first:], rows.top_tokens, rows.top_probs)
        self._before[slot] = prompt[-1]

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Store the successors at the tree's nodes, unless an engine keeps its rows to itself."""
        if len(outcome.rows.top_tokens):
            self._harvest(slot, outcome)
        self._before[slot] = (int(outcome.tree.tokens[0]), *outcome.committed)[-2]

    def _harvest(self, slot: int, outcome: Outcome) -> None:
        tokens = outcome.tree.tokens.tolist()
        before = [tokens[parent] for parent in outcome.tree.parents.tolist()]
        before[0] = self._before[slot]
        best, probs = outcome.rows.top_tokens, outcome.rows.top_probs
        if self._settings.harvest == "accepted":
            stored = [0, *outcome.path]
            tokens = [tokens[node] for node in stored]
            before = [before[node] for node in stored]
            best, probs = best[stored], probs[stored]
        self._tables[slot].harvest(before, tokens, best, probs)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The ``k`` best known successors of each node, by its pair or else by its token.

        Raises:
            DraftwoodError: a query asks for sampled children.
        """
        before = [self._before[slot] for slot in slots]
        return answers(queries, before, [self._tables[slot] for slot in slots], self._prepared)

    def describe(self, slots: Sequence[int], queries: Sequence[Describe]) -> list[list[int] | None]:
        """What the table says of some nodes, by compiled functions."""
        return self._answered(self._descents.describe, slots, queries)

    def descend(self, slots: Sequence[int], queries: Sequence[Descend]) -> list[Descent | None]:
        """The successors of each node, their successors, and so on, by compiled functions."""
        return self._answered(self._descents.descend, slots, queries)

    def _answered(
        self,
        answer: Callable[[_Query, int, NativeRows], _Answer],
        slots: Sequence[int],
        queries: Sequence[_Query],
    ) -> list[_Answer | None]:
        found: list[_Answer | None] = []
        for slot, query in zip(slots, queries, strict=True):
            rows = self._tables[slot].native
            found.append(None if rows is None else answer(query, self._before[slot], rows))
        return found

    def release(self, slot: int) -> None:
        """Forget the slot's table, unless it is shared."""
        self._tables.pop(slot, None)
        self._before.pop(slot, None)

    def _shared_by(self, namespace: str) -> LiveTable:
        """The table of a namespace, whose text others must not draft from."""
        shared = self._shared
        table = shared.pop(namespace) if namespace in shared else self._empty()
        shared[namespace] = table
        if len(shared) > _SHARED:
            del shared[next(iter(shared))]
        return table

    def _empty(self) -> LiveTable:
        settings = self._settings
        # Without a least score a probability of 0 is dropped all the same: it has no logarithm.
        least = max(settings.min_score, float(np.finfo(np.float32).tiny))
        return LiveTable(settings.max_rows, self._width, least, bigram=settings.bigram)


PART = Adjacency
