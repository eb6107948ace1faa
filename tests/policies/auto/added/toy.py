"""A source that knows a Markov chain and is right after most of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Evidence,
    Expand,
    Feature,
    Host,
    Outcome,
    Prefill,
    setting,
)
from tests.factories.markov_target import MarkovTarget

KNOWN = MarkovTarget(sharpness=2.0)


@dataclass(frozen=True)
class Toy(DrafterSpec):
    """Wrong after the multiples of a number."""

    wrong: int = setting(2, "wrong after its multiples", least=1)

    evidence: ClassVar = Evidence(
        copied=(Feature("first"),), ranked=(Feature("score", (0.3, 0.6)),)
    )

    def build(self, host: Host) -> "ToyDrafter":
        return ToyDrafter(self.wrong)


class ToyDrafter(Drafter):
    """See :class:`Toy`."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong
        self.last: dict[int, tuple[int, int]] = {}  # the last two tokens

    def begin(self, slot: int, prefill: Prefill) -> None:
        self.last[slot] = int(prefill.prompt[-1]), prefill.first

    def observe(self, slot: int, outcome: Outcome) -> None:
        before, last = (int(outcome.tree.tokens[0]), *outcome.committed)[-2:]
        self.last[slot] = before, last

    def release(self, slot: int) -> None:
        del self.last[slot]

    def after(self, before: int, token: int) -> int:
        size = KNOWN.info.vocab_size
        best = int(KNOWN.logits((before % size, token % size)).argmax())
        return best if token % self.wrong else (best + 1) % size

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [(Continuation((self.after(*self.last[s]),), 5, 1, 1),) for s in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        answers = []
        for slot, query in zip(slots, queries, strict=True):
            tree = query.tree
            rows = []
            for node in query.nodes:
                parent = tree.parents[node]
                before = tree.tokens[parent] if node else self.last[slot][0]
                rows.append([self.after(before, tree.tokens[node])])
            scores = np.log(np.full((len(rows), 1), 0.5, dtype=np.float32))
            answers.append(Candidates(np.array(rows, dtype=np.int64), scores))
        return answers


PART = Toy
