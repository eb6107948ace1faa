"""Candidates of a step of which some are drawn: above temperature 0, from a neural drafter.

Below a node whose children are ranked, those that are likely enough are kept, and from what is left
of q some more are drawn: verified by :mod:`draftwood.verifiers.traversal`, such a token is accepted
where q and the target agree on all that is left, a ranked one only where it is the target's own. A
token that is kept loses nothing by siblings that are drawn, because it is kept out of the drawing
and verified after them.

That is lossless as long as what was drawn is drafted. How many are drawn is settled beforehand, by
their chances, which do not depend on the tokens; drawn nodes and all above them are in the tree
whatever the price. The others may come and go with the price, as each that is appended is one more
deterministic leaf behind its siblings. Knows nothing of drafters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.policies.auto import features
from draftwood.policies.auto.features import NEURAL, SOURCES, Source
from draftwood.policies.auto.forecast import Predictor
from draftwood.policies.auto.pool import Pool, coded_rows
from draftwood.tree import ROOT, Draw

_DRAWS = 3
"""Most children of a node that are drawn."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Children of a node that are to be drawn.

    Attributes:
        node: their parent.
        codes: a neural drafter's code of each, in the order of drawing.
        exclude: tokens that are kept out of the drawing.
    """

    node: int
    codes: list[int]
    exclude: frozenset[int]


class SampledPool(Pool):
    """See the module, and :class:`draftwood.policies.auto.pool.Pool`."""

    def __init__(
        self,
        anchor: int,
        table: Predictor,
        floor: float,
        most: int,
        sources: tuple[Source, ...] = SOURCES,
    ) -> None:
        super().__init__(anchor, table, floor, most, sources)
        self._sampled: dict[int, int] = {}  # sampled node -> order of sampling
        self._fixed = {ROOT}  # they and what is above them
        self._owed = 0  # nodes that plans have put aside

    @property
    def settled(self) -> int:
        """See :class:`draftwood.policies.auto.pool.Pool`: what was drawn, and what is above it."""
        return len(self._fixed) - 1

    def plan(self, node: int, ranked: Sequence[float], price: float, limit: int) -> Plan | None:
        """Whether to draw children of a node instead of taking more of the ranked ones, and how
        many: of both those that are likely enough to be worth a price.

        What is drawn must be drafted, so that there must be room for it and its ancestors; it is
        put aside.

        Args:
            node: of which the neural drafter has spoken.
            ranked: chances of the further ranked children.
            price: least path chance of a child that is worth its cost.
            limit: most nodes that are drafted.
        """
        reach, children = self.path[node], self.children[node]
        kept = [child for child in children if self.path[child] >= price]
        left = max(0.0, 1.0 - sum(self.probabilities[child] for child in kept))
        above = self._above(node)
        room = limit - (self.settled + self._owed) - len(above)
        codes = [features.sampled_code(place, left) for place in range(min(_DRAWS, max(0, room)))]
        paths = [reach * self.probability_of(NEURAL, node, code) for code in codes]
        codes = codes[: next((i for i, path in enumerate(paths) if path < price), _DRAWS)]
        worth = sum(paths[: len(codes)]) - price * len(codes)
        if not codes or worth <= sum(max(0.0, reach * chance - price) for chance in ranked):
            return None
        self._owed += len(above) + len(codes)
        return Plan(node, codes, frozenset(self.builder.tokens[child] for child in kept))

    def promised(
        self, source: int, node: int, tokens: NDArray[np.int64], logq: NDArray[np.float32]
    ) -> list[float]:
        """Chances of those of a node's ranked children that would be new: of one row."""
        return [
            self.probability_of(source, node, code)
            for _, row, codes in coded_rows([node], tokens[None], logq[None])
            for token, code in zip(row, codes, strict=True)
            if token >= 0 and self.builder.child(node, token) is None
        ]

    def draw(self, plan: Plan, source: str, tokens: Sequence[int], q_row: int) -> list[int]:
        """What was drawn as planned becomes nodes; returned are those that are new.

        Args:
            plan: of which the first tokens are taken.
            source: name of the drafter.
            tokens: in the order in which they were drawn, -1 where there are no more.
            q_row: handle of what they were drawn from.
        """
        self._owed -= len(self._above(plan.node)) + len(plan.codes)
        fresh = []
        for token, code in zip(tokens, plan.codes, strict=False):
            if token < 0:
                break
            node = self.builder.child(plan.node, token)
            if node is None:
                chance = self.probability_of(NEURAL, plan.node, code)
                node = self._add(plan.node, token, source, NEURAL, code, chance)
                fresh.append(node)
            else:
                self._set_code(node, NEURAL, code)
                self._estimate([node])
            self.builder.sources[node] = source
            self.builder.draws[node] = Draw.WITHOUT_REPLACEMENT
            self.builder.q_rows[node] = q_row
            self._sampled[node] = len(self._sampled)
            self._fixed |= self._above(node)
        return fresh

    def chosen(self, price: float, most: int) -> list[int]:
        """What was drawn, and of the others the likeliest, none less likely than ``price``, as many
        as ``most`` leaves room for; siblings that were drawn come first, as they were drawn."""
        if not self._sampled:
            return super().chosen(price, most)
        most = max(most, self.settled)
        path = np.array(self.path)
        path[list(self._fixed)] = np.inf
        worth = np.flatnonzero(path >= price)[1:]
        if len(worth) > most:
            worth = worth[np.argsort(-path[worth], kind="stable")[:most]]
        depths, last = self.builder.depths, len(self)
        return sorted(worth.tolist(), key=lambda n: (depths[n], self._sampled.get(n, last), n))

    def _above(self, node: int) -> set[int]:
        """The node and its ancestors, without those that are drafted anyway."""
        found = set()
        while node not in self._fixed:
            found.add(node)
            node = self.builder.parents[node]
        return found
