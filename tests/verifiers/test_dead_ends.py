"""Nodes that no token can follow: judged as if an end that nobody drafts followed them."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from draftwood.lab.lossless.enumeration import DraftedTree, verdicts
from draftwood.lab.lossless.tape import EnumerationError
from draftwood.protocols import Noise, Verdict, Verifier
from draftwood.tree import Draw
from draftwood.verifiers._residuals import Mode
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from tests.factories.dead_ends import refuse_dead_ends
from tests.verifiers.draft_shapes import binary, chain
from tests.verifiers.exact_law import committed_law, distance, every_draft
from tests.verifiers.small_laws import (
    CannedP,
    CannedQ,
    Draft,
    Law,
    Row,
    Tokens,
    forced,
    law_of,
    rows_along,
)

END = 2
"""The end: q never has it, and p has it after dead prefixes only."""


class Dying(CannedP):
    """p is NaN where the law has the end only; to draw there draws the end."""

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        found = super().probabilities(nodes)
        found[found[:, END] == 1] = torch.nan
        return found

    def draw(self, node: int, noise: Noise) -> int:
        return END if self.rows[node][END] == 1 else super().draw(node, noise)


class Everywhere(Dying):
    """May not be asked behind excluded tokens, so that levels are tested one by one."""

    everywhere = False


def never_ending(seed: int) -> Law:
    def after(prefix: Tokens) -> Row:
        return np.array([*law_of(seed, 2)(prefix), 0.0])

    return after


def ending(seed: int) -> Law:
    """Half of the prefixes are dead, but not the empty one."""

    def after(prefix: Tokens) -> Row:
        dead = prefix and np.random.default_rng([seed, *prefix, 98]).random() < 0.5
        return np.array([0.0, 0.0, 1.0]) if dead or END in prefix else never_ending(seed)(prefix)

    return after


def outcomes(
    verifier: Verifier, kind: type[CannedP], drafts: Sequence[Draft], law: Law
) -> list[dict[Verdict, float]]:
    trees = [
        DraftedTree(d.tree, kind(rows_along(d.tree, law), d.tree), CannedQ(d.q)) for d in drafts
    ]
    found: list[dict[Verdict, float]] = []
    for each in verdicts(verifier, trees):
        merged: dict[Verdict, float] = defaultdict(float)
        for verdict, weight in each:
            merged[verdict] += weight
        found.append(merged)
    return found


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("rule", [Traversal, Rejection, Block])
def test_a_dead_end_is_a_leaf(
    rule: type[Verifier], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = forced(rule, mode)
    shapes = [chain(3), *([binary(Draw.WITHOUT_REPLACEMENT)] if verifier.branching else [])]
    ended = 0.0
    for seed, grow in enumerate(shapes * 3):
        weighted = every_draft(grow, never_ending(seed + 20))
        assert distance(committed_law(verifier, weighted, ending(seed)), ending(seed), 4) < 1e-14
        drafts = [draft for draft, _ in weighted]
        expected = outcomes(verifier, CannedP, drafts, ending(seed))
        for kind in (Dying, Everywhere):
            for one, other in zip(
                outcomes(verifier, kind, drafts, ending(seed)), expected, strict=True
            ):
                assert one == pytest.approx(other, abs=1e-14)
                ended += sum(weight for verdict, weight in one.items() if verdict.bonus == END)
    assert ended > 1

    # Control: a rule asks dead ends that it then does not accept.
    refuse_dead_ends(monkeypatch, EnumerationError("dead"))
    with pytest.raises(EnumerationError, match="dead"):
        outcomes(verifier, Dying, drafts, ending(seed))
