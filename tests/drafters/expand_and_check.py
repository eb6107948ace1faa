"""Drives a drafter level by level, as policies do, and checks every answer on the way."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.protocols import Candidates, Drafter, Expand, Outcome, Prefill
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw, TreeBuilder
from tests.factories.scripted_sources import path_of

TOLERANCE = 1e-4
"""Absolute, for logarithms of probabilities that two float32 models agree on."""


class Text(ABC):
    """One request of a drafter, with an independent computation of the right answers."""

    def __init__(self, drafter: Drafter, slot: int, prefill: Prefill) -> None:
        self.drafter, self.slot = drafter, slot
        drafter.begin(slot, prefill)
        self.tokens = [*prefill.prompt.tolist(), prefill.first]
        self.builder = TreeBuilder(prefill.first)

    @abstractmethod
    def logits(self, node: int) -> torch.Tensor:
        """``[V]`` over the target's tokens, ``-inf`` where the drafter has none."""

    def path(self, node: int) -> list[int]:
        """The tokens from the root's child down to a node."""
        return list(path_of(self.builder, node))

    def query(self, nodes: Sequence[int], k: int) -> Expand:
        return Expand("draft", self.builder, nodes, k)

    def ask(self, nodes: Sequence[int], k: int) -> Candidates:
        """The drafter's answer, checked."""
        return self.answered(self.query(nodes, k))

    def answered(self, query: Expand) -> Candidates:
        """The drafter's answer to a query that excludes nothing, checked."""
        [answer] = self.drafter.expand([self.slot], [query])
        self.check(query, answer)
        return answer

    def check(self, query: Expand, answer: Candidates) -> None:
        """Compare an answer with the logits, for queries that exclude nothing."""
        for i, node in enumerate(query.nodes):
            expected = (self.logits(node) / query.temperature).log_softmax(-1)
            tokens, logq = answer.tokens[i].tolist(), torch.tensor(answer.logq[i])
            if query.draw is Draw.ONE_HOT:
                assert tokens == expected.topk(query.k).indices.tolist()
            elif query.draw is Draw.WITHOUT_REPLACEMENT:
                assert len(set(tokens)) == query.k
            torch.testing.assert_close(logq, expected[tokens], atol=TOLERANCE, rtol=0)
            if query.draw is not Draw.ONE_HOT:
                assert answer.q_rows is not None
                [q] = self.drafter.proposals(self.slot, [int(answer.q_rows[i])])
                torch.testing.assert_close(q, expected.exp(), atol=TOLERANCE, rtol=0)
                assert q[tokens].log().tolist() == pytest.approx(logq.tolist(), abs=1e-6)

    def finish(self, *path: int, bonus: int = 3, rows: Any = None) -> None:
        """Commit a path of the tree, and the next root."""
        tree = self.builder.build()
        committed = (*(int(tree.tokens[node]) for node in path), bonus)
        self.drafter.observe(self.slot, Outcome(tree, path, committed, rows))
        self.tokens += committed
        self.builder = TreeBuilder(bonus)


def sampled(query: Expand, kind: int, seed: int) -> Expand:
    """A query as it is, or the same one for samples, or at another temperature."""
    noise = RequestNoise(seed)
    return (
        query,
        dataclasses.replace(query, draw=Draw.WITHOUT_REPLACEMENT, temperature=0.8, noise=noise),
        dataclasses.replace(query, draw=Draw.IID, temperature=1.5, noise=noise),
        dataclasses.replace(query, temperature=0.7),
    )[kind % 4]


def drive(
    drafter: Drafter, texts: Sequence[Text], rng: np.random.Generator, steps: int, vocab: int
) -> int:
    """Draft ``steps`` steps of up to three levels; returns the number of forwards.

    In some steps a request does not draft at all, or drafts fewer levels than the others, and
    requests are drafted in different ways.
    """
    forwards = 0
    for step in range(steps):
        active = [t for i, t in enumerate(texts) if (step + i) % 4]
        for level in range(3):
            asking = [t for i, t in enumerate(active) if level <= i]
            queries = []
            for text in asking:
                nodes = [n for n, d in enumerate(text.builder.depths) if d == level]
                query = text.query(nodes[:3], 2 + level)
                queries.append(sampled(query, texts.index(text) + step // 2, step))
            forwards += bool(asking)
            answers: list[Any] = drafter.expand([t.slot for t in asking], queries)
            for text, query, answer in zip(asking, queries, answers, strict=True):
                text.check(query, answer)
                for i, node in enumerate(query.nodes):
                    for token in answer.tokens[i].tolist():
                        text.builder.add(node, token, "draft", draw=query.draw)
        for i, text in enumerate(texts):
            deepest = len(text.builder) - 1
            path = text.builder.build().path(deepest)[: (step + i) % 4]
            text.finish(*path, bonus=int(rng.integers(vocab)))
    return forwards
