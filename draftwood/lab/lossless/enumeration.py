"""The exact output law of a step: draft, verify, then continue as the target would.

A step is random where a drafter samples and where a verifier decides, and nowhere else. A tape
enumerates both, for any policy and any verifier. The pair is lossless if the joint law of the next
tokens is the target's, whatever was committed before and whatever the policy has learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from draftwood.engine.lockstep import draft
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDistributions, CannedDrafter
from draftwood.lab.lossless.tape import MOST, Tape, TapeNoise, explore
from draftwood.lab.lossless.tiny import Prefix, Row, Scene, completed, joint
from draftwood.protocols import (
    Distributions,
    Growth,
    Outcome,
    Policy,
    Proposals,
    Verdict,
    Verification,
    Verifier,
)
from draftwood.sampling.distributions import TreeProposals
from draftwood.tree import ROOT, Draw, TokenTree


@dataclass(frozen=True, eq=False)
class DraftedTree:
    """A drafted tree with p and q: a :class:`draftwood.protocols.Verification` without noise."""

    tree: TokenTree
    p: Distributions
    q: Proposals


def verdicts(
    verifier: Verifier, drafted: Sequence[DraftedTree], most: int = MOST
) -> list[list[tuple[Verdict, float]]]:
    """All verdicts on every tree, with their probabilities; equal verdicts are not merged.

    Raises:
        TooManyOutcomesError: there are more than ``most`` of them in all.
        DraftwoodError: a verdict is not a path of its tree, or noise was used twice.
    """
    return explore(partial(_verify, verifier), drafted, most)


def committed(tree: TokenTree, verdict: Verdict) -> Prefix:
    """The tokens that a verdict commits, the bonus last."""
    return (*(int(tree.tokens[node]) for node in verdict.path), verdict.bonus)


def _verify(
    verifier: Verifier, drafted: Sequence[DraftedTree], tapes: Sequence[Tape]
) -> list[Verdict]:
    noises = [TapeNoise(tape) for tape in tapes]
    cases = [
        Verification(one.tree, one.p, one.q, noise)
        for one, noise in zip(drafted, noises, strict=True)
    ]
    found = verifier.verify(cases)
    for one, verdict, noise in zip(drafted, found, noises, strict=True):
        above = ROOT
        for node in verdict.path:
            if one.tree.parents[node] != above:
                raise DraftwoodError(f"the verdict {verdict.path} is not a path from the root")
            above = node
        noise.settle(verdict)
    return found


@dataclass(frozen=True)
class Size:
    """Limits of a drafted tree.

    Attributes:
        budget: most nodes, root excluded.
        room: largest depth; laws are compared over one token more.
    """

    budget: int
    room: int


@dataclass(frozen=True)
class StepStart:
    """The state at the beginning of a step.

    Attributes:
        context: tokens committed before, the root last.
        state: the policy's state.
    """

    context: Prefix
    state: Any


@dataclass(frozen=True, eq=False)
class Ending:
    """One outcome of a step.

    Attributes:
        tree: the drafted tree.
        verdict: the verdict on the tree.
        probability: joint probability of tree and verdict.
    """

    tree: TokenTree
    verdict: Verdict
    probability: float

    @property
    def committed(self) -> Prefix:
        """The committed tokens, the bonus last."""
        return committed(self.tree, self.verdict)


@dataclass(frozen=True, eq=False)
class StepLaw:
    """The output law of a step.

    Attributes:
        endings: all outcomes.
        trees: number of trees that can be drafted.
        difference: largest difference from the target's probability, over all joint outcomes of the
            next ``room + 1`` tokens.
    """

    endings: tuple[Ending, ...]
    trees: int
    difference: float

    @property
    def accepted(self) -> float:
        """Expected number of accepted tokens."""
        return sum(len(end.verdict.path) * end.probability for end in self.endings)


class StepEnumeration:
    """One step of a policy and a verifier in a scene.

    Args:
        policy: grows the trees.
        verifier: verifies the trees.
        scene: distributions of target and drafters.
        size: limits of the trees.
        start: what the step begins with.
        dtype: dtype of p and q as the verifier sees them.
    """

    def __init__(
        self,
        policy: Policy,
        verifier: Verifier,
        scene: Scene,
        size: Size,
        start: StepStart,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._policy = policy
        self._verifier = verifier
        self._scene = scene
        self._size = size
        self._start = start
        self._dtype = dtype
        self._drafters = {
            source: CannedDrafter(scene, source, start.context, dtype) for source in policy.sources
        }

    def law(self, most: int = MOST) -> StepLaw:
        """Enumerate the step.

        Args:
            most: limit on the outcomes of drafting, and of verifying.

        Raises:
            TooManyOutcomesError: there are more outcomes.
            DraftwoodError: a part broke its protocol, so that there is no law to compare.
        """
        trees = self._trees(most)
        drafted = [
            DraftedTree(tree, self._distributions(tree), self._proposals(tree)) for tree, _ in trees
        ]
        endings = tuple(
            Ending(tree, verdict, probability * weight)
            for (tree, probability), found in zip(
                trees, verdicts(self._verifier, drafted, most), strict=True
            )
            for verdict, weight in found
        )
        return StepLaw(endings, len(trees), self._difference(endings))

    def next_start(self, ending: Ending) -> StepStart:
        """The state at the beginning of the next step, after this outcome."""
        rows = self._distributions(ending.tree).rows()
        outcome = Outcome(ending.tree, ending.verdict.path, ending.committed, rows)
        state = self._policy.learn(self._start.state, outcome)
        return StepStart((*self._start.context, *ending.committed), state)

    def _trees(self, most: int) -> list[tuple[TokenTree, float]]:
        """Every tree that can be drafted, with its probability."""
        (drafted,) = explore(self._draft, [None], most)
        trees: dict[tuple[bytes, ...], tuple[TokenTree, float]] = {}
        for tree, weight in drafted:
            first, before = trees.get(_key(tree), (tree, 0.0))
            trees[_key(tree)] = first, before + weight
        for tree, _ in trees.values():
            self._check(tree)
        return list(trees.values())

    def _draft(self, starts: Sequence[None], tapes: Sequence[Tape]) -> list[TokenTree]:
        noises = [TapeNoise(tape) for tape in tapes]
        for drafter in self._drafters.values():
            drafter.play(noises)
        growths = [
            Growth(
                anchor=self._start.context[-1],
                room=self._size.room,
                budget=min(self._size.budget, self._policy.budget),
                temperature=self._scene.temperature,
                noise=noise,
            )
            for noise in noises
        ]
        states = [self._start.state] * len(starts)
        drafted = draft(self._policy, self._drafters, range(len(starts)), growths, states)
        for found in drafted:
            if found.error is not None:
                raise found.error
        return [found.tree for found in drafted]

    def _distributions(self, tree: TokenTree) -> CannedDistributions:
        greedy = self._scene.temperature == 0
        return CannedDistributions(
            self._scene.p, tree, self._start.context, self._dtype, greedy=greedy
        )

    def _proposals(self, tree: TokenTree) -> Proposals:
        return TreeProposals(self._drafters, 0, tree)

    def _check(self, tree: TokenTree) -> None:
        most, deepest = min(self._size.budget, self._policy.budget), self._size.room
        if tree.drafted > most or tree.depth > deepest:
            raise DraftwoodError(
                f"a tree has {tree.drafted} nodes and is {tree.depth} deep where {most} and "
                f"{deepest} are allowed"
            )
        wrong = sorted({Draw(draw) for draw in tree.draws[1:].tolist()} - set(self._policy.draws))
        if wrong:
            kinds = ", ".join(draw.name for draw in wrong)
            raise DraftwoodError(f"a tree has {kinds} nodes, which the policy does not declare")

    def _difference(self, endings: Sequence[Ending]) -> float:
        length = self._size.room + 1

        def target(tokens: Prefix) -> Row:
            return self._scene.p((*self._start.context, *tokens))

        got = completed(target, ((end.committed, end.probability) for end in endings), length)
        return float(np.abs(got - joint(target, (), length)).max())


def _key(tree: TokenTree) -> tuple[bytes, ...]:
    return (
        tree.tokens.tobytes(),
        tree.parents.tobytes(),
        tree.draws.tobytes(),
        tree.logq.tobytes(),
        tree.q_rows.tobytes(),
        "\0".join(tree.sources).encode(),
    )
