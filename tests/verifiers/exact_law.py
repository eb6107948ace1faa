"""The exact output law of a verifier on drafts: all draws of a draft and all decisions on it."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from draftwood.lab.lossless.enumeration import DraftedTree, committed, verdicts
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import completed, joint
from draftwood.protocols import Verdict, Verifier
from tests.verifiers.small_laws import CannedP, CannedQ, Draft, Grow, Law, Tokens, drawn, rows_along

Sequences = dict[Tokens, float]
"""Probabilities of committed tokens."""


def every_draft(grow: Grow, q: Law) -> list[tuple[Draft, float]]:
    def run(starts: Sequence[None], tapes: Sequence[Tape]) -> list[Draft]:
        return [drawn(grow, tape, q) for tape in tapes]

    return explore(run, [None])[0]


def every_verdict(
    verifier: Verifier, drafts: Sequence[Draft], law: Law, dtype: torch.dtype = torch.float64
) -> list[list[tuple[Verdict, float]]]:
    """Verdicts on each draft; all drafts are verified in one batch."""
    trees = [
        DraftedTree(
            draft.tree,
            CannedP(rows_along(draft.tree, law), draft.tree, dtype),
            CannedQ(draft.q, dtype),
        )
        for draft in drafts
    ]
    return verdicts(verifier, trees)


def committed_law(
    verifier: Verifier,
    drafts: Sequence[tuple[Draft, float]],
    law: Law,
    dtype: torch.dtype = torch.float64,
) -> Sequences:
    """Law of the tokens that one step commits."""
    found: Sequences = defaultdict(float)
    endings = every_verdict(verifier, [draft for draft, _ in drafts], law, dtype)
    for (draft, weight), outcomes in zip(drafts, endings, strict=True):
        for verdict, share in outcomes:
            found[committed(draft.tree, verdict)] += weight * share
    return found


def difference(one: Sequences, other: Sequences) -> float:
    return max(abs(one.get(s, 0.0) - other.get(s, 0.0)) for s in {*one, *other})


def distance(found: Sequences, law: Law, length: int) -> float:
    """Largest difference between the law of ``length`` tokens and the target's.

    Committed tokens are continued by plain decoding; no step may commit more than ``length``.
    """
    assert max(map(len, found)) <= length
    return float(abs(completed(law, found.items(), length) - joint(law, (), length)).max())


def mean_accepted(found: Sequences) -> float:
    return sum(weight * (len(tokens) - 1) for tokens, weight in found.items())
