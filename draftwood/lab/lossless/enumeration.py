"""The exact output law of a step: draft, verify, and go on as the target would.

Chance enters a step where a drafter samples and where a verifier decides, and nowhere else; a tape
goes through all of it. So any policy and any verifier can be enumerated without knowing what they
do. The rule has one sentence: the next tokens' joint law must be the target's, whatever was
committed before and whatever the policy has learnt from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from draftwood.engine.lockstep import draft
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDistributions, CannedDrafter
from draftwood.lab.lossless.tape import MOST, Chance, Tape, explore
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
class Drafted:
    """A tree to be judged, and what is known of it; a :class:`draftwood.protocols.Verification`
    without
    its chance."""

    tree: TokenTree
    p: Distributions
    q: Proposals


def verdicts(
    verifier: Verifier, drafted: Sequence[Drafted], most: int = MOST
) -> list[list[tuple[Verdict, float]]]:
    """For every tree the verdicts on it; one comes as often as there are ways to come to it.

    Raises:
        TooManyOutcomesError: there are more than ``most`` of them in all.
        DraftwoodError: a verdict is not a path of its tree, or chance was used in a way that the
            real numbers do not bear.
    """
    return explore(partial(_judge, verifier), drafted, most)


def committed(tree: TokenTree, verdict: Verdict) -> Prefix:
    """The tokens that a verdict commits, the bonus last."""
    return (*(int(tree.tokens[node]) for node in verdict.path), verdict.bonus)


def _judge(verifier: Verifier, drafted: Sequence[Drafted], tapes: Sequence[Tape]) -> list[Verdict]:
    chances = [Chance(tape) for tape in tapes]
    cases = [
        Verification(one.tree, one.p, one.q, chance)
        for one, chance in zip(drafted, chances, strict=True)
    ]
    found = verifier.verify(cases)
    for one, verdict, chance in zip(drafted, found, chances, strict=True):
        above = ROOT
        for node in verdict.path:
            if one.tree.parents[node] != above:
                raise DraftwoodError(f"the verdict {verdict.path} is not a path from the root")
            above = node
        chance.settle(verdict)
    return found


TreeKey: TypeAlias = tuple[bytes, ...]


@dataclass(frozen=True)
class Size:
    """What a step may draft at most.

    Attributes:
        budget: nodes, root excluded.
        room: the deepest one; the law is compared over one token more.
    """

    budget: int
    room: int


@dataclass(frozen=True)
class Moment:
    """Where a step begins.

    Attributes:
        context: tokens committed before it, its root last.
        state: what the policy has learnt.
    """

    context: Prefix
    state: Any


@dataclass(frozen=True, eq=False)
class Ending:
    """One way in which a step can end.

    Attributes:
        tree: what was drafted.
        verdict: what was made of it.
        probability: of both.
    """

    tree: TokenTree
    verdict: Verdict
    probability: float

    @property
    def committed(self) -> Prefix:
        """The tokens that it commits."""
        return committed(self.tree, self.verdict)


@dataclass(frozen=True, eq=False)
class StepLaw:
    """All that can come of a step.

    Attributes:
        endings: every way in which it can end.
        trees: how many trees can be drafted.
        difference: the largest, over all joint outcomes of the next ``room + 1`` tokens, between
            their probability and the target's.
    """

    endings: tuple[Ending, ...]
    trees: int
    difference: float

    @property
    def accepted(self) -> float:
        """Expected number of accepted tokens."""
        return sum(len(end.verdict.path) * end.probability for end in self.endings)


class Step:
    """A policy and a verifier in a scene, from one moment on.

    Args:
        policy: grows the trees.
        verifier: judges them.
        scene: what target and drafters say.
        size: of the trees.
        moment: where the step begins.
        dtype: of p and q as the verifier sees them.
    """

    def __init__(
        self,
        policy: Policy,
        verifier: Verifier,
        scene: Scene,
        size: Size,
        moment: Moment,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._policy = policy
        self._verifier = verifier
        self._scene = scene
        self._size = size
        self._moment = moment
        self._dtype = dtype
        self._drafters = {
            source: CannedDrafter(scene, source, moment.context, dtype) for source in policy.sources
        }

    def law(self, most: int = MOST) -> StepLaw:
        """Go through all that the step can come to.

        Args:
            most: give up beyond so many outcomes of drafting, or of verifying.

        Raises:
            TooManyOutcomesError: there are more.
            DraftwoodError: a part broke a promise, so that there is no law to compare.
        """
        trees = self._trees(most)
        drafted = [
            Drafted(tree, self._distributions(tree), TreeProposals(self._drafters, 0, tree))
            for tree, _ in trees
        ]
        endings = tuple(
            Ending(tree, verdict, probability * weight)
            for (tree, probability), found in zip(
                trees, verdicts(self._verifier, drafted, most), strict=True
            )
            for verdict, weight in found
        )
        return StepLaw(endings, len(trees), self._difference(endings))

    def learnt(self, ending: Ending) -> Moment:
        """Where the next step begins after this one."""
        rows = self._distributions(ending.tree).rows()
        outcome = Outcome(ending.tree, ending.verdict.path, ending.committed, rows)
        state = self._policy.learn(self._moment.state, outcome)
        return Moment((*self._moment.context, *ending.committed), state)

    def _trees(self, most: int) -> list[tuple[TokenTree, float]]:
        """Every tree that can be drafted, once, with its probability."""
        (drafted,) = explore(self._draft, [None], most)
        kept: dict[TreeKey, TokenTree] = {}
        weights: dict[TreeKey, float] = {}
        for tree, weight in drafted:
            key = _key(tree)
            kept.setdefault(key, tree)
            weights[key] = weights.get(key, 0.0) + weight
        for tree in kept.values():
            self._check(tree)
        return [(kept[key], weights[key]) for key in kept]

    def _draft(self, starts: Sequence[None], tapes: Sequence[Tape]) -> list[TokenTree]:
        chances = [Chance(tape) for tape in tapes]
        for drafter in self._drafters.values():
            drafter.play(chances)
        growths = [
            Growth(
                anchor=self._moment.context[-1],
                room=self._size.room,
                budget=min(self._size.budget, self._policy.budget),
                temperature=self._scene.temperature,
                noise=chance,
            )
            for chance in chances
        ]
        states = [self._moment.state] * len(starts)
        drafted = draft(self._policy, self._drafters, range(len(starts)), growths, states)
        for found in drafted:
            if found.error is not None:
                raise found.error
        return [found.tree for found in drafted]

    def _distributions(self, tree: TokenTree) -> CannedDistributions:
        greedy = self._scene.temperature == 0
        return CannedDistributions(
            self._scene.p, tree, self._moment.context, self._dtype, greedy=greedy
        )

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
        target = partial(_target, self._scene, self._moment.context)
        got = completed(target, ((end.committed, end.probability) for end in endings), length)
        return float(np.abs(got - joint(target, (), length)).max())


def _target(scene: Scene, context: Prefix, tokens: Prefix) -> Row:
    return scene.p((*context, *tokens))


def _key(tree: TokenTree) -> TreeKey:
    return (
        tree.tokens.tobytes(),
        tree.parents.tobytes(),
        tree.draws.tobytes(),
        tree.logq.tobytes(),
        tree.q_rows.tobytes(),
        "\0".join(tree.sources).encode(),
    )
