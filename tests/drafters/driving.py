"""Drives a drafter level by level, as policies do, and checks every answer on the way."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from draftwood.protocols import Candidates, Drafter, Expand
from draftwood.tree import TreeBuilder


class Text(Protocol):
    """One request, with an independent opinion of what its drafter must answer."""

    slot: int
    builder: TreeBuilder

    def query(self, nodes: Sequence[int], k: int) -> Expand: ...

    def check(self, query: Expand, answer: Candidates) -> None: ...

    def finish(self, *path: int, bonus: int) -> None: ...


def drive(
    drafter: Drafter, texts: Sequence[Text], rng: np.random.Generator, steps: int, vocab: int
) -> int:
    """Draft ``steps`` steps of up to three levels; how many forwards that is worth.

    In some steps a request does not draft at all, or drafts fewer levels than the others.
    """
    forwards = 0
    for step in range(steps):
        active = [t for i, t in enumerate(texts) if (step + i) % 4]
        for level in range(3):
            asking = [t for i, t in enumerate(active) if level <= i]
            queries = []
            for text in asking:
                nodes = [n for n, d in enumerate(text.builder.depths) if d == level]
                queries.append(text.query(nodes[:3], 2 + level))
            forwards += bool(asking)
            answers: list[Any] = drafter.expand([t.slot for t in asking], queries)
            for text, query, answer in zip(asking, queries, answers, strict=True):
                text.check(query, answer)
                for i, node in enumerate(query.nodes):
                    for token in answer.tokens[i].tolist():
                        text.builder.add(node, token, "draft")
        for i, text in enumerate(texts):
            deepest = len(text.builder) - 1
            path = text.builder.build().path(deepest)[: (step + i) % 4]
            text.finish(*path, bonus=int(rng.integers(vocab)))
    return forwards
