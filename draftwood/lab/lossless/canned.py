"""A canned drafter and a canned target, which answer from a tiny law.

The drafter follows the protocol of :class:`draftwood.protocols.Drafter`. The step's
:class:`~draftwood.lab.lossless.tape.TapeNoise` decides what it samples, so that every possible
answer is enumerated.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tape import EnumerationError, Tape, TapeNoise
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
from draftwood.tree import Draw, TokenTree, TreeBuilder


@dataclass(frozen=True)
class CannedSpec(DrafterSpec):
    """Spec in place of any drafter: it can draw in every way."""

    draws: ClassVar = frozenset(Draw)

    def build(self, host: Host) -> Drafter:
        """Refuse: a canned drafter has no real target.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"a canned drafter drafts for no real target ({host.info})")


class CannedDrafter(Drafter):
    """One source of a method, in one step.

    A slot is an index of the noises of the last :meth:`play`. Handles of proposals never expire.

    Args:
        scene: distributions of the source.
        source: name of the source.
        context: tokens committed before, the root's last.
        dtype: dtype of the proposals.
    """

    def __init__(self, scene: Scene, source: str, context: Prefix, dtype: torch.dtype) -> None:
        self._scene = scene
        self._source = source
        self._context = context
        self._dtype = dtype
        self._noises: Sequence[TapeNoise] = ()
        self._handles: dict[tuple[Prefix, frozenset[int], float], int] = {}
        self._rows: list[torch.Tensor] = []

    def play(self, noises: Sequence[TapeNoise]) -> None:
        """Begin a batch of steps, each with its own noise."""
        self._noises = noises

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """The chains that the scene copies after the context."""
        return [self._scene.copies(self._source, self._context) for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Children, drawn as each query says; tokens of probability 0 are left out."""
        return [
            self._answer(self._noises[slot], query)
            for slot, query in zip(slots, queries, strict=True)
        ]

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """q by handle, ``[n, VOCAB]``."""
        return torch.stack([self._rows[handle] for handle in q_rows])

    def _answer(self, noise: TapeNoise, query: Expand) -> Candidates:
        found = Candidates.none(query)
        # A coupled order is drawn here without the target's random numbers: the walk commits the
        # target's own tokens whatever the order is, and however it depends on these numbers.
        sampled = query.draw is not Draw.ONE_HOT
        if sampled:
            _check_sampled(query, noise)
        for i, node in enumerate(query.nodes):
            exclude = query.exclude[i] if query.exclude else frozenset[int]()
            path = (*self._context, *_path_tokens(query.tree, node))
            # The temperature does not change the ranking, and q is undefined at 0.
            q = self._scene.q(self._source, path, query.temperature if sampled else 1.0)
            q = without(q, exclude)
            if found.q_rows is not None:
                found.q_rows[i] = self._handle(q, path, exclude, query.temperature)
            if sampled:
                drawn = sample(noise.sample(node), q, query.k, query.draw)
            else:
                drawn = iter(ranked(q)[: query.k])
            for j, token in enumerate(drawn):
                found.tokens[i, j], found.logq[i, j] = token, math.log(q[token])
        return found

    def _handle(self, q: Row, path: Prefix, exclude: frozenset[int], temperature: float) -> int:
        key = (path, exclude, temperature)
        if key not in self._handles:
            self._handles[key] = len(self._rows)
            self._rows.append(torch.tensor(q, dtype=self._dtype))
        return self._handles[key]


def ranked(q: Row) -> list[int]:
    """Tokens of positive probability, most probable first; ties keep the order of tokens."""
    return [token for token in np.argsort(-q, kind="stable").tolist() if q[token] > 0]


def sample(tape: Tape, q: Row, k: int, draw: Draw) -> Iterator[int]:
    """At most ``k`` tokens in drawing order; fewer if q has fewer."""
    left = q
    for _ in range(k):
        if not left.any():
            return
        token = tape.branch(left.tolist())
        yield token
        if draw is not Draw.IID:
            left = without(left, {token})


def without(q: Row, tokens: Sequence[int] | set[int] | frozenset[int]) -> Row:
    """q without these tokens, normalised; all zeros if nothing is left."""
    if not tokens:
        return q
    left = q.copy()
    left[list(tokens)] = 0.0
    total = left.sum()
    return left / total if total > 0 else left


class CannedDistributions:
    """p after each node of a tree, ``[n, VOCAB]``; a :class:`draftwood.protocols.Distributions`.

    Args:
        law: the target's law, one-hot if the target is greedy.
        tree: the drafted tree.
        context: tokens committed before, the root's last.
        dtype: dtype of p.
        greedy: whether :meth:`draw` takes the argmax.
    """

    def __init__(
        self, law: Law, tree: TokenTree, context: Prefix, dtype: torch.dtype, *, greedy: bool
    ) -> None:
        rows = np.stack([law((*context, *tree.path_tokens(node))) for node in range(len(tree))])
        self._rows = torch.tensor(rows, dtype=dtype)
        self._depths = tree.depths
        self._greedy = greedy

    @property
    def everywhere(self) -> bool:
        """True: p is given after every node."""
        return True

    def draw(self, node: int, noise: Noise) -> int:
        """A token drawn from p, or its argmax."""
        if self._greedy:
            return int(self._rows[node].argmax())
        return noise.choose(int(self._depths[node]), self._rows[node])

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as ``[n, VOCAB]``."""
        return self._rows[list(nodes)]

    def rows(self) -> TargetOutput:
        """The target output that p comes from, as drafters and policies see it."""
        best = self._rows.float().sort(dim=1, descending=True, stable=True)
        return TargetOutput(
            self._rows.log().float(),
            best.indices[:, 0].numpy(),
            best.indices.numpy(),
            best.values.numpy(),
        )


def _check_sampled(query: Expand, noise: TapeNoise) -> None:
    nodes = list(query.nodes)
    if query.noise is not noise:
        raise EnumerationError(f"nodes {nodes} are sampled with other numbers than the step's")
    if not query.temperature > 0:
        raise EnumerationError(f"nodes {nodes} are sampled at temperature {query.temperature}")


def _path_tokens(tree: TreeBuilder, node: int) -> Prefix:
    found: list[int] = []
    while tree.parents[node] >= 0:
        found.append(tree.tokens[node])
        node = tree.parents[node]
    return tuple(reversed(found))
