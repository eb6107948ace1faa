"""The record of a step's candidates, for the tuner that learns from it. Nothing here decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from draftwood.policies.auto.features import Codes
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import Labelled, Price
from draftwood.tree import ROOT


@dataclass(frozen=True)
class Forwards:
    """Draft forwards of one source that followed one another in a step.

    Attributes:
        source: name of the drafter.
        headroom: the most expected tokens, net of their price, that they could add directly below
            the nodes that they were asked about.
        without: the candidates that would have been drafted without them, and without a discount
            on copies.
        price: of a drafted candidate, in tokens.
    """

    source: str
    headroom: float
    without: Sequence[int]
    price: float


@dataclass(frozen=True, eq=False)
class Report:
    """The report of a bid of ``auto``.

    Attributes:
        candidates: all of the step, drafted or not.
        limit: most of them that may be drafted.
        token_weight: of the request.
        forwards: of draft models, in the order in which they were asked.
        discount: value of a copied candidate over its path probability.
    """

    candidates: Pool
    limit: int
    token_weight: float = 1.0
    forwards: Sequence[Forwards] = ()
    discount: float = 1.0

    @property
    def values(self) -> list[float]:
        """The candidates' values, best first, weighted; no more than may be drafted."""
        best = self.candidates.best(self.limit, self.discount)
        return [self.token_weight * value for value in best]

    def chosen(self, price: Price) -> list[int]:
        """The candidates that are drafted at a price, in the order of a tree's nodes."""
        # The values were multiplied by the weight; dividing again may round the last one out.
        least = price.least * (1.0 - 1e-12) / self.token_weight
        return self.candidates.chosen(least, self.limit, self.discount)

    def expected(self, price: Price) -> float:
        """Tokens that the step is expected to commit at a price."""
        return 1.0 + sum(map(self.candidates.path.__getitem__, self.chosen(price)))

    def gained(self, committed: Sequence[int]) -> dict[str, tuple[float, float]]:
        """The tokens that each source's forwards have added, net of what their nodes cost.

        Beside them the headroom of the forwards. Added is what came of them, and not what was
        predicted: a prediction that is too high would have the draft model asked too often, and
        confirm itself.
        """
        if not self.forwards:
            return {}
        drafted = self.candidates.chosen(self.forwards[-1].price, self.limit)
        trees = pairwise([*(each.without for each in self.forwards), drafted])
        found: dict[str, tuple[float, float]] = {}
        for each, (without, after) in zip(self.forwards, trees, strict=True):
            more = self._accepted(after, committed) - self._accepted(without, committed)
            net, headroom = found.get(each.source, (0.0, 0.0))
            net += more - each.price * (len(after) - len(without))
            found[each.source] = net, headroom + each.headroom
        return found

    def _accepted(self, drafted: Sequence[int], committed: Sequence[int]) -> int:
        """Committed tokens that a tree of some candidates holds."""
        nodes, accepted = set(drafted), 0
        for node, token in self._walked(committed):
            if self.candidates.builder.child(node, token) not in nodes:
                break
            accepted += 1
        return accepted

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
