"""The record of a step's candidates, for the tuner that learns from it. Nothing here decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from draftwood.policies.auto.features import Codes
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import Labelled, Price
from draftwood.tree import ROOT


class LevelGain(NamedTuple):
    """What a draft forward has added to the candidates, in expected tokens net of their price.

    Attributes:
        headroom: the most that it could add directly below the nodes that it was asked about.
        surplus: what it has added, with what other sources have added below its tokens.
    """

    headroom: float
    surplus: float


@dataclass(frozen=True, eq=False)
class Report:
    """The report of a bid of ``auto``.

    Attributes:
        candidates: all of the step, drafted or not.
        limit: most of them that may be drafted.
        token_weight: of the request.
        levels: of each draft forward.
    """

    candidates: Pool
    limit: int
    token_weight: float = 1.0
    levels: tuple[LevelGain, ...] = ()

    def chosen(self, price: Price) -> list[int]:
        """The candidates that are drafted at a price, in the order of a tree's nodes."""
        # A value is a probability times the weight; dividing again may round the last one out.
        least = price.least * (1.0 - 1e-12) / self.token_weight
        return self.candidates.chosen(least, self.limit)

    def expected(self, price: Price) -> float:
        """Tokens that the step is expected to commit at a price."""
        return 1.0 + sum(map(self.candidates.path.__getitem__, self.chosen(price)))

    def labelled(self, committed: Sequence[int]) -> tuple[list[Codes], Labelled]:
        """The candidates below committed tokens, with their codes, labelled by these tokens."""
        pool, nodes = self.candidates, list[int]()
        taken: list[bool] = []
        for node, token in self._walked(committed):
            below = pool.children[node]
            nodes += below
            taken += [pool.builder.tokens[child] == token for child in below]
        sources, probabilities = pool.builder.sources, pool.probabilities
        labelled = Labelled(
            [sources[node] for node in nodes], [probabilities[node] for node in nodes], taken
        )
        return [pool.codes[node] for node in nodes], labelled

    def _walked(self, committed: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The nodes that the committed tokens pass, from the root on, and the token after each."""
        node, pool = ROOT, self.candidates
        for token in committed:
            yield node, token
            below = pool.builder.child(node, token)
            if below is None:
                return
            node = below
