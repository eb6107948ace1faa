"""The target walk: greedy cases by hand, and its output law by exact enumeration."""

from collections.abc import Sequence

import numpy as np
import pytest

from draftwood.protocols import Noise, Verdict, Verification, Verifier
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import ROOT, Draw, TokenTree, tree_of
from draftwood.verifiers.walk import Walk, walk
from tests.factories.literal_verifiers import Eager
from tests.verifiers.exact_law import committed_law, distance
from tests.verifiers.small_laws import Draft, Law, Row, Script, always, case_of, law_of

LENGTH = 4
TREES = {
    "root": tree_of([0], [-1]),
    "chain": tree_of([0, 1, 1, 2], [-1, 0, 1, 2]),
    "spine": tree_of([0, 2, 1, 0, 0, 2, 1], [-1, 0, 1, 0, 1, 2, 4]),
    "full": tree_of([0, 0, 1, 2, *[0, 1, 2] * 3], [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]),
}


def walked(tree: TokenTree, law: Law, noise: Noise, verifier: Verifier | None = None) -> Verdict:
    return (verifier or Walk()).verify([case_of(Draft(tree, {}, {}), law, noise)])[0]


def loss(verifier: Verifier, tree: TokenTree, seed: int) -> float:
    law = law_of(seed)
    return distance(committed_law(verifier, [(Draft(tree, {}, {}), 1.0)], law), law, LENGTH)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
@pytest.mark.parametrize("seed", range(4))
def test_the_output_law_is_the_targets(tree: TokenTree, seed: int) -> None:
    assert loss(Walk(), tree, seed) < 1e-12


class Best(Walk):
    """Wrong on purpose: the token after the path is the likeliest one."""

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        return [self.ended(case, walk(case)) for case in cases]

    def ended(self, case: Verification, verdict: Verdict) -> Verdict:
        end = (ROOT, *verdict.path)[-1]
        return Verdict(verdict.path, int(case.p.probabilities([end])[0].argmax()))


@pytest.mark.parametrize("wrong", [Eager(), Best()], ids=["eager", "best"])
@pytest.mark.parametrize("name", ["chain", "spine"])
def test_the_same_test_rejects_wrong_verifiers(wrong: Verifier, name: str) -> None:
    assert max(loss(wrong, TREES[name], seed) for seed in range(4)) > 0.01


def greedy(tree: TokenTree, *argmax: int) -> Verdict:
    by_path = {tree.path_tokens(node): token for node, token in enumerate(argmax)}

    def one_hot(prefix: tuple[int, ...]) -> Row:
        return np.asarray(np.eye(10)[by_path[prefix]])

    return walked(tree, one_hot, Script())


def test_greedy_walks() -> None:
    tree = tree_of([9, 5, 6, 6, 7], [-1, 0, 0, 1, 1])
    assert greedy(tree, 5, 7, 0, 0, 3) == Verdict((1, 4), 3)
    assert greedy(tree, 6, 7, 1, 0, 3) == Verdict((2,), 1)
    assert greedy(tree, 8, 7, 1, 0, 3) == Verdict((), 8)
    assert greedy(tree, 5, 9, 1, 0, 3) == Verdict((1,), 9)
    assert greedy(tree_of([9], [-1]), 4) == Verdict((), 4)


@pytest.mark.parametrize("seed", range(5))
def test_tokens_equal_plain_sampling(seed: int) -> None:
    law, chosen = law_of(seed, zeros=0), list[int]()
    for position in range(4):
        chosen.append(
            walked(TREES["root"], lambda _: law(tuple(chosen)), RequestNoise(seed, position)).bonus
        )
    for tree in TREES.values():
        verdict = walked(tree, law, RequestNoise(seed, 0))
        tokens = [int(tree.tokens[node]) for node in verdict.path] + [verdict.bonus]
        assert tokens == chosen[: len(tokens)]


def test_the_walk_makes_no_acceptance_decisions() -> None:
    script = Script()
    walked(TREES["full"], always(0.2, 0.5, 0.3), script)
    assert script.probabilities == {}


def test_sampled_nodes_are_not_among_its_accepted_draws() -> None:
    assert Walk().accepts == {Draw.ONE_HOT, Draw.COUPLED}
    assert Walk().branching
