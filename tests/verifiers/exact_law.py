"""The exact output law of a verifier: all draws of a draft and all decisions on it.

Chance enters only where a draft is drawn and where a verifier asks its noise. A :class:`Fork`
takes one course through these decisions and notes which others there were, so that all of them can
be run through and weighed.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from draftwood.protocols import Verdict, Verification, Verifier
from tests.verifiers.small_laws import CannedP, CannedQ, Draft, Grow, Law, Tokens, drawn, rows_along

T = TypeVar("T")


class Fork:
    """Takes a given course, then the first one possible; notes where others turn off."""

    def __init__(self, course: tuple[int, ...] = ()) -> None:
        self.weight = 1.0
        self.others: list[tuple[int, ...]] = []
        self._course = course
        self._taken: list[int] = []
        self._asked: set[tuple[str, int]] = set()

    def pick(self, weights: Sequence[float]) -> int:
        assert min(weights) >= 0
        place = len(self._taken)
        options = [i for i, weight in enumerate(weights) if weight > 0]
        if place < len(self._course):
            choice = self._course[place]
        else:
            choice = options[0]
            self.others += [(*self._taken, other) for other in options[1:]]
        self.weight *= weights[choice] / sum(weights)
        self._taken.append(choice)
        return choice

    def accepts(self, node: int, probability: float) -> bool:
        self._once("accepts", node)
        return self.pick([probability, 1 - probability]) == 0

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        self._once("choose", depth)
        return self.pick(weights.tolist())

    def _once(self, what: str, where: int) -> None:
        # A request's noise gives the same number again.
        assert (what, where) not in self._asked
        self._asked.add((what, where))


def every_course(
    run: Callable[[list[tuple[int, Fork]]], list[T]], starts: int = 1
) -> list[list[tuple[float, T]]]:
    """All results with their weights, from each start; many are computed at a time."""
    found: list[list[tuple[float, T]]] = [[] for _ in range(starts)]
    waiting = [(start, Fork()) for start in range(starts)]
    while waiting:
        for (start, fork), result in zip(waiting, run(waiting), strict=True):
            found[start].append((fork.weight, result))
        waiting = [(start, Fork(other)) for start, fork in waiting for other in fork.others]
    return found


def every_draft(grow: Grow, q: Law) -> list[tuple[float, Draft]]:
    return every_course(lambda pairs: [drawn(grow, fork, q) for _, fork in pairs])[0]


def every_verdict(
    verifier: Verifier, drafts: Sequence[Draft], law: Law, dtype: torch.dtype = torch.float64
) -> list[list[tuple[float, Verdict]]]:
    """Results of each draft; all drafts are verified in one batch."""
    rows = [rows_along(draft.tree, law) for draft in drafts]

    def run(pairs: list[tuple[int, Fork]]) -> list[Verdict]:
        cases = []
        for start, fork in pairs:
            tree, q = drafts[start].tree, CannedQ(drafts[start].q, dtype)
            cases.append(Verification(tree, CannedP(rows[start], tree, dtype), q, fork))
        return verifier.verify(cases)

    return every_course(run, len(drafts))


Sequences = dict[Tokens, float]
"""Probabilities of what is decoded."""


def target_law(law: Law, length: int, given: Tokens = ()) -> Sequences:
    """Law of the first ``length`` tokens under the target, given how they begin."""
    found = {given: 1.0}
    for _ in range(length - len(given)):
        found = {
            (*prefix, token): weight * p
            for prefix, weight in found.items()
            for token, p in enumerate(law(prefix).tolist())
        }
    return found


def committed_law(
    verifier: Verifier,
    drafts: Sequence[tuple[float, Draft]],
    law: Law,
    dtype: torch.dtype = torch.float64,
) -> Sequences:
    """Law of what one step commits."""
    found: Sequences = defaultdict(float)
    endings = every_verdict(verifier, [draft for _, draft in drafts], law, dtype)
    for (weight, draft), outcomes in zip(drafts, endings, strict=True):
        for share, verdict in outcomes:
            path = (int(draft.tree.tokens[node]) for node in verdict.path)
            found[(*path, verdict.bonus)] += weight * share
    return found


def difference(one: Sequences, other: Sequences) -> float:
    return max(abs(one.get(s, 0.0) - other.get(s, 0.0)) for s in {*one, *other})


def distance(committed: Sequences, law: Law, length: int) -> float:
    """Largest difference between the law of ``length`` tokens and the target's.

    What a step commits is continued by plain decoding; no step may commit more than ``length``.
    """
    found: Sequences = defaultdict(float)
    for tokens, weight in committed.items():
        for sequence, rest in target_law(law, length, tokens).items():
            found[sequence] += weight * rest
    assert abs(sum(found.values()) - 1) < 1e-5
    return difference(found, target_law(law, length))


def mean_accepted(committed: Sequences) -> float:
    return sum(weight * (len(tokens) - 1) for tokens, weight in committed.items())
