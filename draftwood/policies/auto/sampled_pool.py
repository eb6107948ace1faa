"""Candidates of a step of which some are sampled: above temperature 0, from a neural drafter.

Below a node, ranked children that are likely enough stay, and further children are sampled from
the rest of q. :mod:`draftwood.verifiers.traversal` accepts a sampled token where q and the target
agree on all that is left, and a ranked token only where it is the target's own. A ranked token
loses nothing by its sampled siblings: it is excluded from the sampling and verified after them.

This is lossless as long as every sampled token is drafted. How many are sampled is settled before,
by probabilities that do not depend on the tokens. Sampled nodes and all their ancestors are in the
tree whatever the price. The other nodes may come and go with the price: each is one more
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

_MOST = 3
"""Most children of a node that are sampled."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Children of a node that are to be sampled.

    Attributes:
        node: their parent.
        codes: a neural drafter's code of each, in sampling order.
        exclude: tokens that may not be sampled.
        reserved: places of a tree that are kept for them and their ancestors.
    """

    node: int
    codes: list[int]
    exclude: frozenset[int]
    reserved: int


class SampledPool(Pool):
    """A :class:`draftwood.policies.auto.pool.Pool` of which some candidates are sampled."""

    def __init__(
        self,
        anchor: int,
        acceptance: Predictor,
        floor: float,
        most: int,
        sources: tuple[Source, ...] = SOURCES,
    ) -> None:
        super().__init__(anchor, acceptance, floor, most, sources)
        self._sampled: dict[int, int] = {}  # sampled node -> order of sampling
        self._fixed = {ROOT}  # sampled nodes and their ancestors
        self._reserved = 0  # nodes that plans have reserved

    @property
    def settled(self) -> int:
        """See :class:`draftwood.policies.auto.pool.Pool`: sampled nodes and their ancestors."""
        return len(self._fixed) - 1

    def plan(self, node: int, ranked: Sequence[float], price: float, limit: int) -> Plan | None:
        """A plan to sample children of a node; None if further ranked children promise more.

        Sampled nodes must be drafted, so room for them and their ancestors is reserved.

        Args:
            node: below which the neural drafter was asked.
            ranked: probabilities of the further ranked children.
            price: lowest path probability of a child that pays.
            limit: most nodes that are drafted.
        """
        reach, children = self.path[node], self.children[node]
        likely = [child for child in children if self.path[child] >= price]
        left = max(0.0, 1.0 - sum(self.probabilities[child] for child in likely))
        above = self._above(node)
        room = limit - (self.settled + self._reserved) - len(above)
        codes = [features.sampled_code(place, left) for place in range(min(_MOST, max(0, room)))]
        paths = [reach * self.probability_of(NEURAL, node, code) for code in codes]
        codes = codes[: next((i for i, path in enumerate(paths) if path < price), _MOST)]
        gain = sum(paths[: len(codes)]) - price * len(codes)
        if not codes or gain <= sum(max(0.0, reach * p - price) for p in ranked):
            return None
        reserved = len(above) + len(codes)
        self._reserved += reserved
        exclude = frozenset(self.builder.tokens[child] for child in likely)
        return Plan(node, codes, exclude, reserved)

    def promised(
        self, source: int, node: int, tokens: NDArray[np.int64], logq: NDArray[np.float32]
    ) -> list[float]:
        """Probabilities of the ranked children of a row that would be new."""
        return [
            self.probability_of(source, node, code)
            for _, row, codes in coded_rows([node], tokens[None], logq[None])
            for token, code in zip(row, codes, strict=True)
            if token >= 0 and self.builder.child(node, token) is None
        ]

    def add_sampled(self, plan: Plan, name: str, tokens: Sequence[int], q_row: int) -> list[int]:
        """Add the sampled children of a plan; returns the new nodes.

        Args:
            plan: says how many of the tokens are added.
            name: of the drafter.
            tokens: in sampling order, -1 where there are no more.
            q_row: handle of the distribution that they were sampled from.
        """
        self._reserved -= plan.reserved
        fresh = []
        for token, code in zip(tokens, plan.codes, strict=False):
            if token < 0:
                break
            node = self.builder.child(plan.node, token)
            if node is None:
                own = self.probability_of(NEURAL, plan.node, code)
                node = self._add(plan.node, token, name, NEURAL, code, own)
                fresh.append(node)
            else:
                self._set_code(node, NEURAL, code)
                self._estimate([node])
            self.builder.sources[node] = name
            self.builder.draws[node] = Draw.WITHOUT_REPLACEMENT
            self.builder.q_rows[node] = q_row
            self._sampled[node] = len(self._sampled)
            self._fixed |= self._above(node)
        return fresh

    def best(self, most: int, discount: float = 1.0) -> list[float]:
        """Values of the settled nodes, and the largest ones of the others, best first."""
        values = self.values(discount)
        fixed = [value for node, value in enumerate(values) if node in self._fixed][1:]
        others = [value for node, value in enumerate(values) if node not in self._fixed]
        return [*fixed, *sorted(others, reverse=True)[: max(0, most - len(fixed))]]

    def chosen(self, price: float, most: int, discount: float = 1.0) -> list[int]:
        """The sampled nodes with their ancestors, and those of the others with the largest values.

        At most ``most`` nodes in all; none of the others is below ``price``. Sampled siblings come
        first, in sampling order.
        """
        if not self._sampled:
            return super().chosen(price, most, discount)
        most = max(most, self.settled)
        values = np.array(self.values(discount))
        values[list(self._fixed)] = np.inf
        paying = np.flatnonzero(values >= price)[1:]
        if len(paying) > most:
            paying = paying[np.argsort(-values[paying], kind="stable")[:most]]
        depths, last = self.builder.depths, len(self)
        return sorted(paying.tolist(), key=lambda n: (depths[n], self._sampled.get(n, last), n))

    def _above(self, node: int) -> set[int]:
        """The node and its ancestors, without those that are settled."""
        found = set()
        while node not in self._fixed:
            found.add(node)
            node = self.builder.parents[node]
        return found
