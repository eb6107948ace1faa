"""The common part of drafters that draft a few tokens ahead, without a cache of drafted tokens.

What the queries of a step share is computed once, of the committed text. Nodes from some depth on
have no children.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from draftwood.protocols import Candidates, Drafter, Expand, Needs, TargetInfo, TargetOutput

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.draws import Draws
    from draftwood.drafters._rollout.topk import Place


class AheadDrafter(Drafter):
    """Proposes the likeliest tokens after nodes above some depth, or samples.

    Args:
        token_ids: int64 ``[Vd]``, the id of each output; those beyond the target's tokens are
            padding.
        target: the target.
    """

    def __init__(self, token_ids: torch.Tensor, target: TargetInfo) -> None:
        # Here, so that settings can be listed without torch.
        from draftwood.drafters._rollout.vocabulary import VocabularyMap

        ids = token_ids.cpu().numpy()
        self._vocabulary = VocabularyMap(np.where(ids < target.vocab_size, ids, -1), target)
        self._draws: dict[int, Draws] = {}
        self._wanted = Needs(host=False)
        self._forwards = 0

    @abstractmethod
    def prepare(self, slots: Sequence[int]) -> None:
        """Compute what the step's queries share, in one forward, where it is not there yet."""

    @abstractmethod
    def ahead(self, slot: int) -> int:
        """Tokens drafted ahead in this step: nodes of a smaller depth have children."""

    @abstractmethod
    def places(self, asked: Sequence[tuple[int, Expand]]) -> list[list[Place]]:
        """The output at the nodes of each slot's query, all above the depth of :meth:`ahead`."""

    @abstractmethod
    def forget(self, slot: int) -> None:
        """Drop what was computed for the step of a slot, if anything."""

    @property
    def forwards(self) -> int:
        """Forward passes so far."""
        return self._forwards

    def start(self, slot: int) -> None:
        """A request starts in ``slot``."""
        from draftwood.drafters._rollout.draws import Draws

        self._draws[slot] = Draws(self._vocabulary)
        self.forget(slot)

    def step(self, slot: int) -> None:
        """A step was committed: its distributions are those of a former root."""
        self._draws[slot].clear()
        self.forget(slot)

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._draws.pop(slot, None)
        self.forget(slot)

    def ranked(self, logits: torch.Tensor) -> TargetOutput:
        """The output of some nodes, ranked as far as the present queries need it.

        ``logits`` ``[n, Vd]`` are masked in place.
        """
        nothing = np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0), np.float32)
        return self._vocabulary.mapped_output(TargetOutput(logits, *nothing), self._wanted)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._draws[slot].proposals(q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node; none after a node at the last depth.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        from draftwood.drafters._rollout.answers import answers, check, most_ranked

        for query in queries:
            check(query)
        ranked = most_ranked(queries)
        # As wide as ever asked: a node may be asked again, for more.
        self._wanted = Needs(top_k=max(self._wanted.top_k, ranked), host=ranked > 0)
        self.prepare(slots)
        within = [_within(q, self.ahead(slot)) for slot, q in zip(slots, queries, strict=True)]
        asked = [
            (slot, _part(query, places))
            for slot, query, places in zip(slots, queries, within, strict=True)
            if places
        ]
        rows = self.places(asked)
        given = [(self._draws[slot], q, r) for (slot, q), r in zip(asked, rows, strict=True)]
        found = iter(answers(given, self._vocabulary))
        return [
            _whole(query, places, next(found)) if places else Candidates.none(query)
            for query, places in zip(queries, within, strict=True)
        ]


def _within(query: Expand, ahead: int) -> list[int]:
    """Places in the query of the nodes that may have children."""
    depths = query.tree.depths
    return [place for place, node in enumerate(query.nodes) if depths[node] < ahead]


def _part(query: Expand, places: Sequence[int]) -> Expand:
    """The query about some of its nodes."""
    if len(places) == len(query.nodes):
        return query
    exclude = [query.exclude[place] for place in places] if query.exclude else ()
    return replace(query, nodes=[query.nodes[place] for place in places], exclude=exclude)


def _whole(query: Expand, places: Sequence[int], found: Candidates) -> Candidates:
    """The answer to a query, from that about some of its nodes."""
    if len(places) == len(query.nodes):
        return found
    whole = Candidates.none(query)
    whole.tokens[places] = found.tokens
    whole.logq[places] = found.logq
    if whole.q_rows is not None and found.q_rows is not None:
        whole.q_rows[places] = found.q_rows
    return whole
