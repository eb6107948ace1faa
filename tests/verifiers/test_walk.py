"""The target walk: greedy cases by hand, and its output law by exact enumeration."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from draftwood.protocols import Distributions, Noise, Verdict, Verifier
from draftwood.tree import ROOT, Draw, TokenTree, tree_of
from draftwood.verifiers.walk import Walk

V = 3
LENGTH = 4
Sequences = dict[tuple[int, ...], float]
Law = Callable[[tuple[int, ...]], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def law_of(seed: int) -> Law:
    """A target over three tokens: p after every prefix, in float64, zeros included."""
    known: dict[tuple[int, ...], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def after(prefix: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        if prefix not in known:
            rng = np.random.default_rng([seed, *prefix, 99])
            p = rng.dirichlet([0.7] * V)
            if rng.random() < 0.2:
                p[rng.integers(V)] = 0.0
            known[prefix] = p / p.sum()
        return known[prefix]

    return after


class CannedP:
    """p after each node of a tree, drawn by quantile."""

    def __init__(self, tree: TokenTree, law: Law) -> None:
        self.rows = [law(tree.path_tokens(node)) for node in range(len(tree))]

    def draw(self, node: int, uniform: float) -> int:
        return int(np.searchsorted(np.cumsum(self.rows[node]), uniform, side="right"))

    def probabilities(self, node: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[node])


class CannedNoise:
    def __init__(self, tokens: Sequence[float]) -> None:
        self.tokens = tokens

    def token(self, depth: int) -> float:
        return self.tokens[depth]

    def accept(self, node: int) -> float:
        raise AssertionError("a walk accepts nothing by chance")


def output_law(verifier: Verifier, tree: TokenTree, law: Law) -> Sequences:
    """Exact law of the next LENGTH tokens: one step with the tree, then plain sampling.

    The uniforms of each depth are integrated exactly: between two neighbouring quantiles of any
    node at that depth, the verdict cannot change.
    """
    p = CannedP(tree, law)
    cells = []
    for depth in range(tree.depth + 1):
        cuts = {0.0, 1.0}
        for node in np.flatnonzero(tree.depths == depth).tolist():
            cuts.update(np.cumsum(p.rows[node])[:-1].tolist())
        edges = sorted(cuts)
        cells.append([((a + b) / 2, b - a) for a, b in itertools.pairwise(edges) if b > a])
    found: Sequences = defaultdict(float)
    for cell in itertools.product(*cells):
        verdict = verifier.verify(tree, p, CannedNoise([u for u, _ in cell]))
        tokens = (*(int(tree.tokens[node]) for node in verdict.path), verdict.bonus)
        weight = float(np.prod([width for _, width in cell]))
        for sequence, rest in target_law(law, tokens).items():
            found[sequence] += weight * rest
    return found


def target_law(law: Law, given: tuple[int, ...] = ()) -> Sequences:
    """Law of the first LENGTH tokens under the target, given how they begin."""
    found = {given: 1.0}
    for _ in range(LENGTH - len(given)):
        found = {
            (*prefix, token): weight * p
            for prefix, weight in found.items()
            for token, p in enumerate(law(prefix).tolist())
        }
    return found


def distance(verifier: Verifier, tree: TokenTree, law: Law) -> float:
    got, expected = output_law(verifier, tree, law), target_law(law)
    return max(abs(got.get(s, 0.0) - expected.get(s, 0.0)) for s in {*got, *expected})


TREES = {
    "root": tree_of([0], [-1]),
    "chain": tree_of([0, 1, 1, 2], [-1, 0, 1, 2]),
    "spine": tree_of([0, 2, 1, 0, 0, 2, 1], [-1, 0, 1, 0, 1, 2, 4]),
    "full": tree_of([0, 0, 1, 2, *[0, 1, 2] * 3], [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
@pytest.mark.parametrize("seed", range(4))
def test_the_output_law_is_the_targets(tree: TokenTree, seed: int) -> None:
    assert distance(Walk(), tree, law_of(seed)) < 1e-12


class Eager(Walk):
    """Wrong on purpose: takes any child that the target could have taken."""

    def verify(self, tree: TokenTree, p: Distributions, noise: Noise) -> Verdict:
        node, path = ROOT, list[int]()
        while True:
            possible = p.probabilities(node).tolist()
            children = [tree.child(node, token) for token in range(V) if possible[token] > 0]
            taken = next((child for child in children if child is not None), None)
            if taken is None:
                return Verdict(tuple(path), p.draw(node, noise.token(len(path))))
            path.append(taken)
            node = taken


class Stale(Walk):
    """Wrong on purpose: one random number for all depths."""

    def verify(self, tree: TokenTree, p: Distributions, noise: Noise) -> Verdict:
        return super().verify(tree, p, CannedNoise([noise.token(0)] * (tree.depth + 1)))


@pytest.mark.parametrize("wrong", [Eager(), Stale()], ids=["eager", "stale"])
@pytest.mark.parametrize("name", ["chain", "spine", "full"])
def test_the_same_test_rejects_wrong_verifiers(wrong: Verifier, name: str) -> None:
    assert max(distance(wrong, TREES[name], law_of(seed)) for seed in range(4)) > 0.01


def greedy(tree: TokenTree, *argmax: int) -> Verdict:
    def one_hot(prefix: tuple[int, ...]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        row = np.zeros(10)
        row[by_path[prefix]] = 1.0
        return row

    by_path = {tree.path_tokens(node): token for node, token in enumerate(argmax)}
    return Walk().verify(tree, CannedP(tree, one_hot), CannedNoise([0.5] * len(tree)))


def test_greedy_walks() -> None:
    tree = tree_of([9, 5, 6, 6, 7], [-1, 0, 0, 1, 1])
    assert greedy(tree, 5, 7, 0, 0, 3) == Verdict((1, 4), 3)
    assert greedy(tree, 6, 7, 1, 0, 3) == Verdict((2,), 1)
    assert greedy(tree, 8, 7, 1, 0, 3) == Verdict((), 8)
    assert greedy(tree, 5, 9, 1, 0, 3) == Verdict((1,), 9)
    assert greedy(tree_of([9], [-1]), 4) == Verdict((), 4)


def test_it_accepts_only_deterministic_nodes() -> None:
    assert Walk().accepts == {Draw.ONE_HOT}
