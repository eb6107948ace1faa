"""The common part of drafters that propose by depth: Medusa's heads, block drafters.

Such a drafter computes the distributions of the next tokens together, each given the committed
tokens alone. They are marginals: those of a depth do not depend on the drafted tokens above. So all
nodes of a depth have the same children, and one forward answers every query of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.protocols import Candidates, Drafter, Expand, Needs, TargetInfo, TargetOutput

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.draws import Draws
    from draftwood.drafters._rollout.topk import Place


@dataclass
class _Request:
    """The state of one request in the present step.

    Attributes:
        draws: tokens sampled in this step.
        rows: the output of the step's forward; None: not computed.
        span: rows of this request, one per depth.
    """

    draws: Draws
    rows: TargetOutput | None = None
    span: range = range(0)


class MarginalDrafter(Drafter):
    """Proposes the likeliest tokens of each depth, or samples.

    Args:
        token_ids: int64 ``[Vd]``, the id of each output; those beyond the target's tokens are
            padding.
        target: the target.
    """

    at_once: ClassVar = True

    def __init__(self, token_ids: torch.Tensor, target: TargetInfo) -> None:
        # Here, so that settings can be listed without torch.
        from draftwood.drafters._rollout.vocabulary import VocabularyMap

        ids = token_ids.cpu().numpy()
        self._vocabulary = VocabularyMap(np.where(ids < target.vocab_size, ids, -1), target)
        self._requests: dict[int, _Request] = {}
        self._widest = 0
        self._forwards = 0

    @abstractmethod
    def marginals(self, slots: Sequence[int]) -> torch.Tensor:
        """Logits ``[b, m, Vd]`` of the ``m`` tokens after the root of each slot."""

    @property
    def forwards(self) -> int:
        """Forward passes so far, at most one per step."""
        return self._forwards

    def start(self, slot: int) -> None:
        """A request starts in ``slot``."""
        from draftwood.drafters._rollout.draws import Draws

        self._requests[slot] = _Request(Draws(self._vocabulary))

    def step(self, slot: int) -> None:
        """A step was committed: its distributions are those of a former root."""
        request = self._requests[slot]
        request.draws.clear()
        request.rows = None

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._requests.pop(slot, None)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._requests[slot].draws.proposals(q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node; none after a node at the last depth.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        from draftwood.drafters._rollout.answers import answers, check, most_ranked

        for query in queries:
            check(query)
        ranked = most_ranked(queries)
        self._widest = max(self._widest, ranked)
        fresh = [slot for slot in slots if self._requests[slot].rows is None]
        if fresh:
            self._compute(fresh, ranked=ranked > 0)
        requests = [self._requests[slot] for slot in slots]
        within = [_within(r, q) for r, q in zip(requests, queries, strict=True)]
        asked = [
            (request.draws, _part(query, places), _rows(request, query, places))
            for request, query, places in zip(requests, queries, within, strict=True)
            if places
        ]
        found = iter(answers(asked, self._vocabulary))
        return [
            _whole(query, places, next(found)) if places else Candidates.none(query)
            for query, places in zip(queries, within, strict=True)
        ]

    def _compute(self, slots: Sequence[int], *, ranked: bool) -> None:
        """Compute the distributions of some slots in one forward."""
        logits = self.marginals(slots)
        self._forwards += 1
        depths = logits.shape[1]
        nothing = np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0), np.float32)
        rows = self._vocabulary.mapped_output(
            TargetOutput(logits.flatten(0, 1), *nothing), Needs(top_k=self._widest, host=ranked)
        )
        for number, slot in enumerate(slots):
            request = self._requests[slot]
            request.rows = rows
            request.span = range(number * depths, (number + 1) * depths)


def _within(request: _Request, query: Expand) -> list[int]:
    """Places in the query of the nodes that may have children."""
    depths = query.tree.depths
    return [place for place, node in enumerate(query.nodes) if depths[node] < len(request.span)]


def _rows(request: _Request, query: Expand, places: Sequence[int]) -> list[Place]:
    """The output after some nodes of a query."""
    assert request.rows is not None
    depths = query.tree.depths
    return [(request.rows, request.span[depths[query.nodes[place]]]) for place in places]


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
