"""Sampled drafts under a grammar have the target's masked distribution exactly: all outcomes."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from draftwood.engine import lockstep
from draftwood.lab.lossless import enumeration
from draftwood.lab.lossless.canned import CannedDistributions
from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepLaw, StepStart
from draftwood.lab.lossless.tiny import VOCAB, Prefix, Row, Scene
from draftwood.methods import recipes, registry
from draftwood.methods.recipe import build
from draftwood.protocols import Verifier
from draftwood.sampling.distributions import TreeProposals
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import ROOT, TokenTree
from tests.factories.toy_constraint import toy_constraint

CONTEXT = (1, 2)
CLOSE = 1e-12
SIZE = Size(4, 2)
PAIRS = [
    ("traversal", "traversal"),
    ("traversal", "rejection"),
    ("rrsw", "rejection"),
    ("specinfer", "rejection"),
    ("specinfer", "traversal"),
    ("block", "block"),
    ("mixed", "traversal"),
    ("goose-sampled", "traversal"),
    ("traversal-talon", "traversal"),
    ("traversal-dynatree", "traversal"),
]


def legal(prefix: Prefix) -> set[int]:
    """Two of the three tokens, or one, by all that came before."""
    turn = sum(i * token for i, token in enumerate(prefix, 1)) % 4
    return {turn % 3} if turn == 3 else {token for token in range(VOCAB) if token != turn}


def allowed(row: Row, prefix: Prefix) -> Row:
    kept: Row = np.zeros(VOCAB)
    kept[[*legal(prefix)]] = row[[*legal(prefix)]]
    kept /= kept.sum()
    return kept


class Constrained(Scene):
    """A scene whose target has a grammar; the target allows all tokens itself."""

    def raw(self, prefix: Prefix) -> Row:
        return 0.85 * super().p(prefix) + 0.05

    def p(self, prefix: Prefix) -> Row:
        return allowed(self.raw(prefix), prefix)


class ConstrainedStep(StepEnumeration):
    """A step under a grammar.

    ``masked`` says after which nodes the target is masked, ``q_masked`` whether q is.
    """

    masked: Any = staticmethod(lambda node: True)
    q_masked = True

    def _distributions(self, tree: TokenTree) -> CannedDistributions:
        scene = cast(Constrained, self._scene)
        found = CannedDistributions(scene.raw, tree, self._start.context, self._dtype, greedy=False)
        mask = self._mask(tree)
        for node in range(len(tree)):
            if self.masked(node):
                row = mask.masked(found._rows[node : node + 1], [node], 0.0)[0]
                found._rows[node] = row / row.sum()
        return found

    def _proposals(self, tree: TokenTree) -> TreeProposals:
        mask = self._mask(tree) if self.q_masked else None
        return TreeProposals(self._drafters, 0, tree, mask)

    def _mask(self, tree: TokenTree) -> TreeMask:
        return TreeMask(toy_constraint(legal, VOCAB, seen=self._start.context), tree)


@pytest.fixture(autouse=True)
def _pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    def draft(policy: Any, drafters: Any, slots: Sequence[int], growths: Any, states: Any) -> Any:
        constraints = [toy_constraint(legal, VOCAB, seen=CONTEXT) for _ in slots]
        return lockstep.draft(policy, drafters, slots, growths, states, constraints=constraints)

    monkeypatch.setattr(enumeration, "draft", draft)


def law(name: str, verifier: str, seed: int, **changed: Any) -> StepLaw:
    policy = build(recipes()[name]).policy
    rule = cast(Verifier, registry.load("verifiers", verifier)())
    step = ConstrainedStep(
        policy, rule, Constrained(seed), SIZE, StepStart(CONTEXT, policy.start())
    )
    for key, value in changed.items():
        setattr(step, key, value)
    return step.law()


@pytest.mark.parametrize(("name", "verifier"), PAIRS)
def test_the_law_is_the_masked_targets(name: str, verifier: str) -> None:
    sampled, accepted = 0, 0.0
    for seed in range(5):
        found = law(name, verifier, seed)
        assert found.difference < CLOSE
        accepted += found.accepted
        for end in found.endings:
            sampled += int(end.tree.draws.any())
            for node in range(1, len(end.tree)):
                assert end.tree.path_tokens(node)[-1] in legal(
                    (*CONTEXT, *end.tree.path_tokens(int(end.tree.parents[node])))
                )
    assert sampled
    assert accepted > 0.1


@pytest.mark.parametrize(("name", "verifier"), PAIRS[:6])
def test_masks_at_the_root_alone_do_not_do(name: str, verifier: str) -> None:
    """Negative control."""
    worst = max(law(name, verifier, s, masked=lambda n: n == ROOT).difference for s in range(5))
    assert worst > 0.01


@pytest.mark.parametrize(("name", "verifier"), [pair for pair in PAIRS[:6] if pair[0] != "block"])
def test_without_masks_of_q_the_law_is_another(name: str, verifier: str) -> None:
    """Negative control: children were dropped from the drawing."""
    assert max(law(name, verifier, s, q_masked=False).difference for s in range(5)) > 1e-4
