"""A drafter and a target of which everything is known: they answer from a tiny law.

The drafter keeps the protocol of :class:`draftwood.protocols.Drafter` to the letter; what it
samples it leaves to the step's :class:`~draftwood.lab.lossless.tape.Chance`, so that every answer
it could have given is gone through.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tape import Chance, ChanceError, Tape
from draftwood.lab.lossless.tiny import Law, Prefix, Row, Scene
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Expand,
    Host,
    Noise,
    TargetOutput,
)
from draftwood.tree import SAMPLED, Draw, TokenTree, TreeBuilder


@dataclass(frozen=True)
class CannedSpec(DrafterSpec):
    """Stands in a method for any drafter: it can be asked to choose in every way."""

    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> Drafter:
        """Nothing: it drafts for no real target.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"a canned drafter drafts for no real target ({host.info})")


class CannedDrafter(Drafter):
    """One source of a method, in one step.

    Slots are the numbers of the chances that :meth:`play` was last given. Handles of proposals hold
    for as long as the drafter does.

    Args:
        scene: what it knows.
        source: the name it goes by.
        context: tokens committed before, the root's last.
        dtype: of its proposals.
    """

    def __init__(self, scene: Scene, source: str, context: Prefix, dtype: torch.dtype) -> None:
        self._scene = scene
        self._source = source
        self._context = context
        self._dtype = dtype
        self._chances: Sequence[Chance] = ()
        self._handles: dict[tuple[Prefix, frozenset[int], float], int] = {}
        self._rows: list[torch.Tensor] = []

    def play(self, chances: Sequence[Chance]) -> None:
        """Begin a batch of steps, each with chances of its own."""
        self._chances = chances

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """What the scene's context copies."""
        return [self._scene.copies(self._source, self._context) for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Children of every kind; a token of probability 0 is none."""
        return [
            self._answer(self._chances[slot], query)
            for slot, query in zip(slots, queries, strict=True)
        ]

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """q by handle, ``[n, VOCAB]``."""
        return torch.stack([self._rows[handle] for handle in q_rows])

    def _answer(self, chance: Chance, query: Expand) -> Candidates:
        tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
        logq = np.full((len(query.nodes), query.k), -np.inf, dtype=np.float32)
        handles = np.full(len(query.nodes), -1, dtype=np.int64)
        # A coupled order is drawn here without the target's numbers: whatever it is, and however it
        # hangs together with these, the walk takes the target's own tokens.
        sampled = query.draw is not Draw.ONE_HOT
        if sampled:
            _check_sampled(query, chance)
        for i, node in enumerate(query.nodes):
            exclude = query.exclude[i] if query.exclude else frozenset[int]()
            path = (*self._context, *_path_tokens(query.tree, node))
            # No temperature changes the ranking, and at 0 there is no q.
            q = self._scene.q(self._source, path, query.temperature if sampled else 1.0)
            q = without(q, exclude)
            if sampled:
                handles[i] = self._handle(q, path, exclude, query.temperature)
                drawn = sample(chance.sample(node), q, query.k, query.draw)
            else:
                drawn = iter(ranked(q)[: query.k])
            for j, token in enumerate(drawn):
                tokens[i, j], logq[i, j] = token, math.log(q[token])
        return Candidates(tokens, logq, handles if query.draw in SAMPLED else None)

    def _handle(self, q: Row, path: Prefix, exclude: frozenset[int], temperature: float) -> int:
        key = (path, exclude, temperature)
        if key not in self._handles:
            self._handles[key] = len(self._rows)
            self._rows.append(torch.tensor(q, dtype=self._dtype))
        return self._handles[key]


def ranked(q: Row) -> list[int]:
    """Tokens of positive probability, likeliest first, the first of equal ones first."""
    return [token for token in np.argsort(-q, kind="stable").tolist() if q[token] > 0]


def sample(tape: Tape, q: Row, k: int, draw: Draw) -> Iterator[int]:
    """At most ``k`` tokens in the order in which they are drawn from q; fewer if q runs out."""
    left = q
    for _ in range(k):
        if not left.any():
            return
        token = tape.branch(left.tolist())
        yield token
        if draw is not Draw.IID:
            left = without(left, {token})


def without(q: Row, tokens: Sequence[int] | set[int] | frozenset[int]) -> Row:
    """q with these tokens taken out; all zeros if nothing is left."""
    if not tokens:
        return q
    left = q.copy()
    left[list(tokens)] = 0.0
    total = left.sum()
    return left / total if total > 0 else left


class CannedDistributions:
    """p after each node of a tree, ``[n, VOCAB]``; a :class:`draftwood.protocols.Distributions`.

    Args:
        law: the target's, one-hot if it is greedy.
        tree: the drafted tree.
        context: tokens committed before, the root's last.
        dtype: of p.
        greedy: whether tokens are taken and not drawn.
    """

    def __init__(
        self, law: Law, tree: TokenTree, context: Prefix, dtype: torch.dtype, *, greedy: bool
    ) -> None:
        rows = np.stack([law((*context, *tree.path_tokens(node))) for node in range(len(tree))])
        self._rows = torch.tensor(rows, dtype=dtype)
        self._depths = tree.depths
        self._greedy = greedy

    def draw(self, node: int, noise: Noise) -> int:
        """A token drawn from p, or its argmax."""
        if self._greedy:
            return int(self._rows[node].argmax())
        return noise.choose(int(self._depths[node]), self._rows[node])

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as ``[n, VOCAB]``."""
        return self._rows[list(nodes)]

    def rows(self) -> TargetOutput:
        """The target's answer that p comes from, as drafters and policies are shown it."""
        best = self._rows.float().sort(dim=1, descending=True, stable=True)
        return TargetOutput(
            self._rows.log().float(),
            best.indices[:, 0].numpy(),
            best.indices.numpy(),
            best.values.numpy(),
        )


def _check_sampled(query: Expand, chance: Chance) -> None:
    nodes = list(query.nodes)
    if query.noise is not chance:
        raise ChanceError(f"nodes {nodes} are sampled with other numbers than the step's")
    if not query.temperature > 0:
        raise ChanceError(f"nodes {nodes} are sampled at temperature {query.temperature}")


def _path_tokens(tree: TreeBuilder, node: int) -> Prefix:
    found: list[int] = []
    while tree.parents[node] >= 0:
        found.append(tree.tokens[node])
        node = tree.parents[node]
    return tuple(reversed(found))
