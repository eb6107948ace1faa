"""Tiny laws, trees drawn from them, and verifications of these trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.protocols import Noise, Verification, Verifier
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from draftwood.verifiers._residuals import Mode

Row = NDArray[np.float64]
Tokens = tuple[int, ...]
Law = Callable[[Tokens], Row]
"""The distribution after every prefix."""


def law_of(seed: int, vocab: int = 3, zeros: float = 0.2) -> Law:
    """A law of which a share ``zeros`` of the rows excludes a token."""
    known: dict[Tokens, Row] = {}

    def after(prefix: Tokens) -> Row:
        if prefix not in known:
            rng = np.random.default_rng([seed, *prefix, 99])
            p = rng.dirichlet([0.7] * vocab)
            if rng.random() < zeros:
                p[rng.integers(vocab)] = 0.0
            known[prefix] = p / p.sum()
        return known[prefix]

    return after


def always(*row: float) -> Law:
    """A law that knows no context."""
    return lambda prefix: np.array(row)


# --- drafts ---------------------------------------------------------------------------------------


class Picks(Protocol):
    """A :class:`draftwood.lab.lossless.tape.Tape`, or another source of decisions."""

    def branch(self, weights: Sequence[float]) -> int:
        """An index, drawn as the weights say."""
        ...


class Dice:
    """Picks at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def branch(self, weights: Sequence[float]) -> int:
        share = np.array(weights)
        return int(self.rng.choice(len(share), p=share / share.sum()))


class Given:
    """Picks what was decided beforehand."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = list(tokens)

    def branch(self, weights: Sequence[float]) -> int:
        return self.tokens.pop(0)


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree, for every sampled node the row of q it came from, and what Q it was drawn from."""

    tree: TokenTree
    q: Mapping[int, Row]
    drawn_from: Mapping[int, Row]


class Drafting:
    """A tree that is being drawn, and what it is drawn from."""

    def __init__(self, picks: Picks, q: Law) -> None:
        self.builder = TreeBuilder(-1)
        self._picks = picks
        self.law = q
        self._q: dict[int, Row] = {}
        self._drawn_from: dict[int, Row] = {}

    def tokens(self, node: int) -> Tokens:
        found: list[int] = []
        while node != ROOT:
            found.insert(0, self.builder.tokens[node])
            node = self.builder.parents[node]
        return tuple(found)

    def q(self, node: int, exclude: Sequence[int] = (), law: Law | None = None) -> Row:
        row = (law or self.law)(self.tokens(node)).copy()
        if exclude:
            row[list(exclude)] = 0
            row /= row.sum() or 1.0
        return row

    def pick(self, row: Row) -> int:
        return self._picks.branch(row.tolist())

    def sample(
        self,
        node: int,
        count: int,
        draw: Draw = Draw.WITHOUT_REPLACEMENT,
        exclude: Sequence[int] = (),
        source: str = "draft",
        law: Law | None = None,
    ) -> list[int]:
        """Draw children; fewer where nothing is left to draw."""
        row = self.q(node, exclude, law)
        left, children = row.copy(), list[int]()
        for _ in range(count):
            if left.sum() == 0:
                break
            drawn_from = left / left.sum()
            token = self.pick(drawn_from)
            children.append(self.add(node, token, row, drawn_from, draw, source))
            if draw is Draw.WITHOUT_REPLACEMENT:
                left[token] = 0
        return children

    def add(
        self, node: int, token: int, row: Row, drawn_from: Row, draw: Draw, source: str = "draft"
    ) -> int:
        """A child that is said to be drawn in this way."""
        child = self.builder.add(node, token, source, draw=draw, q_row=node)
        self._q[child], self._drawn_from[child] = row, drawn_from
        return child

    def put(self, node: int, token: int) -> int:
        """A child that is not drawn."""
        child = self.builder.add(node, token, "known")
        self._drawn_from[child] = np.eye(len(self.q(node)))[token]
        return child

    def finish(self) -> Draft:
        return Draft(self.builder.build(), self._q, self._drawn_from)


Grow = Callable[[Drafting], None]


def drawn(grow: Grow, picks: Picks, q: Law) -> Draft:
    drafting = Drafting(picks, q)
    grow(drafting)
    return drafting.finish()


def example() -> Draft:
    """The paper's: X1 = a with children X3 = b and X4 = c, then X2 = b with X5 = a."""

    def grow(drafting: Drafting) -> None:
        first, second = drafting.sample(ROOT, 2)
        drafting.sample(first, 2)
        drafting.sample(second, 1)

    return drawn(grow, Given(0, 1, 1, 2, 0), always(0.6, 0.3, 0.1))


# --- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CannedP:
    """p after each node, and a list of what was asked."""

    rows: Sequence[Row]
    tree: TokenTree
    dtype: torch.dtype = torch.float64
    asked: list[tuple[int, ...]] = field(default_factory=list)
    everywhere: ClassVar = True

    def draw(self, node: int, noise: Noise) -> int:
        row = torch.tensor(self.rows[node], dtype=self.dtype)
        return noise.choose(int(self.tree.depths[node]), row)

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        self.asked.append(tuple(nodes))
        return torch.tensor(np.stack([self.rows[node] for node in nodes]), dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class CannedQ:
    """q of each sampled node, and a list of what was asked."""

    rows: Mapping[int, Row]
    dtype: torch.dtype = torch.float64
    asked: list[int] = field(default_factory=list)

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        self.asked.extend(nodes)
        return torch.tensor(np.stack([self.rows[node] for node in nodes]), dtype=self.dtype)


def rows_along(tree: TokenTree, law: Law) -> list[Row]:
    return [law(tree.path_tokens(node)) for node in range(len(tree))]


def case_of(
    draft: Draft, law: Law, noise: Noise, dtype: torch.dtype = torch.float64
) -> Verification:
    p = CannedP(rows_along(draft.tree, law), draft.tree, dtype)
    return Verification(draft.tree, p, CannedQ(draft.q, dtype), noise)


def forced(kind: type[Verifier], mode: Mode) -> Verifier:
    """A verifier that tries siblings in this way, wherever p is."""
    found: Verifier = type(kind.__name__, (kind,), {"mode": mode})()
    return found


class Script:
    """Noise that accepts one node, or none, and notes what it was asked."""

    def __init__(self, accepted: int = -1) -> None:
        self.accepted = accepted
        self.probabilities: dict[int, float] = {}
        self.weights = torch.zeros(0)
        self.depth = -1

    def accepts(self, node: int, probability: float) -> bool:
        assert node not in self.probabilities, "asked twice"
        self.probabilities[node] = probability
        return node == self.accepted

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        self.depth, self.weights = depth, weights
        return int(weights.argmax())
