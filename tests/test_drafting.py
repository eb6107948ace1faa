"""Policies in lockstep: queries of a batch are merged, answers go back to whom they belong."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from draftwood.drafting import draft
from draftwood.protocols import (
    Candidates,
    Continuation,
    Continue,
    Expand,
    Grower,
    Growth,
    Needs,
    Outcome,
    Prefill,
)
from draftwood.tree import Draw, TreeBuilder


@dataclass
class Echo:
    """Offers ``slot * 10 + depth`` below every node and logs how it was called."""

    needs: Needs = field(default_factory=Needs)
    forwards: int = 0
    calls: list[tuple[int, ...]] = field(default_factory=list)

    def begin(self, slot: int, prefill: Prefill) -> None: ...

    def observe(self, slot: int, outcome: Outcome) -> None: ...

    def release(self, slot: int) -> None: ...

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        raise AssertionError("nothing was sampled")

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        self.calls.append(tuple(slots))
        return [(Continuation((slot * 10 + 9,), 3, 1, 1),) for slot in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        self.calls.append(tuple(slots))
        answers = []
        for slot, query in zip(slots, queries, strict=True):
            rows = [[slot * 10 + query.tree.depths[node]] for node in query.nodes]
            tokens = np.array(rows, dtype=np.int64)
            answers.append(Candidates(tokens, np.zeros(tokens.shape, dtype=np.float32)))
        return answers


@dataclass(frozen=True)
class Staircase:
    """Grows a chain as deep as ``growth.room``, one query a level."""

    budget: int = 9
    sources: tuple[str, ...] = ("deep", "copy")
    draws: frozenset[Draw] = frozenset({Draw.ONE_HOT})
    branching: bool = True

    def start(self) -> None: ...

    def learn(self, state: None, outcome: Outcome) -> None: ...

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        node = 0
        for _ in range(growth.room):
            answer = yield Expand("deep", tree, [node], 1)
            node = tree.add(node, int(answer.tokens[0, 0]), "deep")
        copied = yield Continue("copy")
        tree.add_chain(copied[0].tokens, "copy")
        return tree.build()


def test_lockstep() -> None:
    deep, copy = Echo(), Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (2, 0, 3)]
    trees = draft(Staircase(), {"deep": deep, "copy": copy}, [4, 5, 6], growths, [None] * 3)
    assert [tree.tokens.tolist() for tree in trees] == [
        [1, 40, 41, 49],
        [1, 59],
        [1, 60, 61, 62, 69],
    ]
    assert deep.calls == [(4, 6), (4, 6), (6,)]
    assert sorted(slot for call in copy.calls for slot in call) == [4, 5, 6]
