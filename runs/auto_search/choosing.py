"""Trees that are chosen from ``auto``'s candidates otherwise than by its price.

The candidates are gathered by the policy itself, and its tuner hears the bid, so that it learns as
ever; only which of them are verified is decided here, some of it by who knows the future.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.costs.curve import StepCosts
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import Candidates, Continuation, Continue, Expand, Grower, Growth, Outcome
from draftwood.protocols.bids import Bid
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from runs.auto_search.ahead import Ahead

Choose = Callable[[Bid], TokenTree]


@dataclass(frozen=True, eq=False)
class _Around:
    """What all policies around ``auto`` take over from it."""

    inner: Auto

    @property
    def budget(self) -> int:
        return self.inner.budget

    @property
    def sources(self) -> tuple[str, ...]:
        return self.inner.sources

    @property
    def draws(self) -> frozenset[Draw]:
        return self.inner.draws

    @property
    def branching(self) -> bool:
        return self.inner.branching

    def start(self) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, outcome: Outcome) -> None:
        """There is nothing to learn."""


@dataclass(frozen=True, eq=False)
class Choosing(_Around):
    """``auto`` up to its bid; then ``choose`` takes what it wants of the candidates."""

    choose: Choose

    def grow(self, growth: Growth, state: None) -> Grower:
        """Where ``auto`` does not bid, its tree."""
        growing: Generator[Any, Any, TokenTree] = self.inner.grow(growth, state)
        answer: Any = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as ended:
                found: TokenTree = ended.value
                return found
            answer = yield query
            if isinstance(query, Bid):
                return self.choose(query)


@dataclass(frozen=True, eq=False)
class Foreseeing(_Around):
    """The path that the target takes, as far as the free sources offer it when asked along it."""

    ahead: Ahead

    def grow(self, growth: Growth, state: None) -> Grower:  # noqa: ARG002
        """Routes: ``auto``, or ``plain`` where no source offers the next token."""
        inner, builder = self.inner, TreeBuilder(growth.anchor)
        deepest = min(inner.budget, growth.budget, inner.max_depth, growth.room)
        if deepest < 1:
            return builder.build("plain")
        offers: tuple[Continuation, ...] = yield Continue(inner.chain)
        future = tuple(self.ahead.tokens[:deepest])
        node = ROOT
        for end, token in enumerate(future, start=1):
            source = inner.chain
            if not any(tuple(offer.tokens[:end]) == future[:end] for offer in offers):
                source = inner.table
                answer: Candidates = yield Expand(source, builder, [node], inner.width)
                if token not in answer.tokens[0].tolist():
                    break
            node = builder.add(node, token, source)
        return builder.build("auto" if builder.drafted else "plain")


def likeliest(nodes: int) -> Choose:
    """So many of the likeliest candidates, or all there are."""
    return lambda bid: bid.pool.admitted(0.0, nodes, "auto")


def seconds(costs: StepCosts, context: int, most: int) -> NDArray[np.float64]:
    """Of a step over 0 to ``most`` drafted nodes, without drafting: ``[most + 1]``."""
    forward = costs.target.table(most + 1, context)[1:]
    return np.asarray(forward + costs.fixed + costs.node * np.arange(most + 1), dtype=np.float64)


def told(costs: StepCosts, rate: float, ahead: Ahead) -> Choose:
    """As many as pay at a given rate of tokens a second, by their chances."""

    def choose(bid: Bid) -> TokenTree:
        worth = np.concatenate(([0.0], np.cumsum(bid.values)))
        worth -= rate * seconds(costs, ahead.length, len(bid.values))
        return bid.pool.admitted(0.0, int(worth.argmax()), "auto")

    return choose


def taken(bid: Bid, ahead: Ahead) -> list[int]:
    """Nodes of the pool that the target takes, from the root's child on."""
    found, node = [], ROOT
    for token in ahead.tokens:
        child = bid.pool.builder.child(node, token)
        if child is None:
            break
        found.append(child)
        node = child
    return found


def ranks(bid: Bid, nodes: list[int]) -> list[int]:
    """How many of the likeliest candidates it takes to have each of the nodes."""
    order = np.argsort(-np.array(bid.pool.path[1:]), kind="stable")
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order + 1] = np.arange(1, len(order) + 1)
    found: list[int] = rank[nodes].tolist()
    return found


def foreseen_size(costs: StepCosts, rate: float, ahead: Ahead) -> Choose:
    """As many of the likeliest as turn out to pay at a given rate of tokens a second."""

    def choose(bid: Bid) -> TokenTree:
        sizes = [0, *(n for n in ranks(bid, taken(bid, ahead)) if n <= bid.limit)]
        worth = np.arange(len(sizes)) - rate * seconds(costs, ahead.length, sizes[-1])[sizes]
        return bid.pool.admitted(0.0, sizes[int(worth.argmax())], "auto")

    return choose


def foreseen_path(ahead: Ahead) -> Choose:
    """Those candidates that the target takes, and no others."""

    def choose(bid: Bid) -> TokenTree:
        pool = bid.pool.builder
        built = TreeBuilder(pool.tokens[ROOT])
        node = ROOT
        for child in taken(bid, ahead)[: bid.limit]:
            node = built.add(node, pool.tokens[child], pool.sources[child])
        return built.build("auto" if built.drafted else "plain")

    return choose
