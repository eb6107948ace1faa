"""Policies made to be enumerated: right ones, and some that select after drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import Candidates, Expand, Grower, Growth, Policy
from draftwood.tree import ROOT, Draw, TreeBuilder


@dataclass(frozen=True)
class Stateless(Policy):
    """Draws a tree with a number of children by level."""

    shape: tuple[int, ...] = (2, 1)
    draw: Draw = Draw.WITHOUT_REPLACEMENT
    source: str = "draft"

    budget: ClassVar = 6

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def draws(self) -> frozenset[Draw]:
        return frozenset({self.draw, Draw.ONE_HOT})

    def wanted(self, growth: Growth) -> Draw:
        return self.draw if growth.temperature else Draw.ONE_HOT

    def ask(
        self,
        growth: Growth,
        builder: TreeBuilder,
        nodes: list[int],
        k: int,
        draw: Draw,
        exclude: Sequence[frozenset[int]] = (),
    ) -> Expand:
        return Expand(
            self.source,
            builder,
            nodes,
            k,
            draw,
            exclude,
            growth.temperature or 1.0,
            growth.noise,
        )

    def kept(self, tokens: list[int], logq: list[float]) -> list[int]:
        """Which of a node's candidates become nodes, in this order."""
        return list(range(len(tokens)))

    def add(
        self, builder: TreeBuilder, most: int, node: int, answer: Candidates, i: int, draw: Draw
    ) -> list[int]:
        """The children of a node, the i-th in the answer, in a tree of ``most`` nodes."""
        tokens = [token for token in answer.tokens[i].tolist() if token >= 0]
        logq = answer.logq[i].tolist()
        handle = -1 if answer.q_rows is None else int(answer.q_rows[i])
        return [
            builder.add(node, tokens[j], self.source, logq=logq[j], draw=draw, q_row=handle)
            for j in self.kept(tokens, logq)[: most - builder.drafted]
        ]

    def grow(self, growth: Growth, state: None) -> Grower:
        builder = TreeBuilder(growth.anchor)
        draw = self.wanted(growth)
        level = [ROOT]
        for k in self.shape[: growth.room]:
            if not level or builder.drafted >= growth.budget:
                break
            answer: Candidates = yield self.ask(growth, builder, level, k, draw)
            below: list[int] = []
            for i, node in enumerate(level):
                below += self.add(builder, growth.budget, node, answer, i, draw)
            level = below
        return builder.build()


@dataclass(frozen=True)
class Adaptive(Stateless):
    """Expands only the likelier of the children drawn: a rule that may look at what was drawn."""

    def grow(self, growth: Growth, state: None) -> Grower:
        builder = TreeBuilder(growth.anchor)
        draw, node = self.wanted(growth), ROOT
        for k in self.shape[: growth.room]:
            answer: Candidates = yield self.ask(growth, builder, [node], k, draw)
            added = self.add(builder, growth.budget, node, answer, 0, draw)
            if not added:
                break
            node = max(added, key=lambda child: (builder.logq[child], child))
        return builder.build()


@dataclass(frozen=True)
class SampledThenBest(Stateless):
    """One sampled child beside the likeliest token, which was excluded from the draw."""

    def grow(self, growth: Growth, state: None) -> Grower:
        builder = TreeBuilder(growth.anchor)
        if growth.room < 1 or growth.budget < 2 or not growth.temperature:
            return builder.build()
        best: Candidates = yield self.ask(growth, builder, [ROOT], 1, Draw.ONE_HOT)
        top = [frozenset({int(best.tokens[0, 0])})]
        drawn: Candidates = yield self.ask(growth, builder, [ROOT], 1, self.draw, top)
        self.add(builder, growth.budget, ROOT, drawn, 0, self.draw)
        self.add(builder, growth.budget, ROOT, best, 0, Draw.ONE_HOT)
        return builder.build()


@dataclass(frozen=True)
class Sorted(Stateless):
    """Wrong: siblings in the order of q, not of drawing."""

    def kept(self, tokens: list[int], logq: list[float]) -> list[int]:
        return sorted(range(len(tokens)), key=lambda j: -logq[j])


@dataclass(frozen=True)
class Reranking(Sorted):
    """Wrong: keeps the likeliest one of those drawn."""

    def kept(self, tokens: list[int], logq: list[float]) -> list[int]:
        return super().kept(tokens, logq)[:1]


@dataclass(frozen=True)
class Pruning(Stateless):
    """Wrong: drops what was drawn and is unlikely."""

    def kept(self, tokens: list[int], logq: list[float]) -> list[int]:
        return [j for j in range(len(tokens)) if logq[j] > -1.0]


@dataclass(frozen=True)
class Deduplicating(Stateless):
    """Wrong: drawn with replacement, repeats left out."""

    draw: Draw = Draw.IID

    def kept(self, tokens: list[int], logq: list[float]) -> list[int]:
        return [j for j, token in enumerate(tokens) if token not in tokens[:j]]


@dataclass(frozen=True)
class TopCalledSampled(Stateless):
    """Wrong: the likeliest tokens, said to have been sampled."""

    def grow(self, growth: Growth, state: None) -> Grower:
        builder = TreeBuilder(growth.anchor)
        if growth.room < 1 or growth.budget < 2 or not growth.temperature:
            return builder.build()
        drawn: Candidates = yield self.ask(growth, builder, [ROOT], 1, self.draw)
        best: Candidates = yield self.ask(growth, builder, [ROOT], 2, Draw.ONE_HOT)
        sampled = Candidates(best.tokens, best.logq, drawn.q_rows)
        self.add(builder, growth.budget, ROOT, sampled, 0, self.draw)
        return builder.build()
