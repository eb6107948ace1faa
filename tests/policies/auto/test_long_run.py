"""What prices come to over many steps: no fixed size of tree makes more of its time."""

import itertools
import operator
import random
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import Bid, Continuation
from draftwood.tree import ROOT, TokenTree
from tests.policies.auto.codes import by_place
from tests.policies.auto.known_costs import (
    LINEAR,
    STEPPED,
    Sure,
    begin,
    bid,
    bid_of,
    observe,
    outcome,
    tree_at,
)
from tests.policies.auto.stage import Stage


@dataclass(frozen=True)
class Candidate:
    """A chain of tokens 0, 1, 2, ... that goes on with one probability, or a fan of siblings."""

    probabilities: tuple[float, ...]
    deep: bool

    def bid(self) -> Bid:
        if self.deep:
            pool = Pool(99, Sure(), floor=0.0, most=1000)
            pool.copy(range(len(self.probabilities)), by_place(3), "context")
            pool.path[1:] = accumulate(self.probabilities, mul)
            return bid_of(pool)
        return bid(*self.probabilities)

    def committed(self, tree: TokenTree, rng: random.Random) -> tuple[int, ...]:
        """What is drawn for the candidates, as far as it was drafted, and one token more."""
        if not self.deep:
            right = rng.choices(
                [*range(len(self.probabilities)), 500],
                [*self.probabilities, 1.0 - sum(self.probabilities)],
            )[0]
            return (right, 600) if tree.child(ROOT, right) is not None else (right,)
        n = 0
        while n < tree.drafted and rng.random() < self.probabilities[n]:
            n += 1
        return (*range(n), 500)

    @property
    def paths(self) -> list[float]:
        """Path probabilities of all its tokens."""
        if self.deep:
            return list(itertools.accumulate(self.probabilities, operator.mul))
        return list(self.probabilities)


SITUATIONS = (
    Candidate((0.95,) * 30, deep=True),
    Candidate((0.6,) * 12, deep=True),
    Candidate((0.3, 0.2, 0.15, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01), deep=False),
    Candidate((0.04, 0.03, 0.02), deep=False),
    Candidate((), deep=False),
)
SAMPLED = Curve((1, 8, 9, 24, 64), (1.0, 1.0, 1.2, 1.3, 3.0))


@pytest.mark.parametrize("curve", [LINEAR, STEPPED, SAMPLED, Curve((1, 33), (1.0, 5.0))])
@pytest.mark.parametrize("batch", [1, 3])
def test_no_fixed_size_makes_more_of_its_time(curve: Curve, batch: int) -> None:
    """Over steps that promise much and steps that promise little, in an order left to probability.

    Both are held to what they may expect of what they draft, and pay what it costs.
    """
    rng = random.Random(4)
    of = AutoTuner(Calibration(), FixedCosts(StepCosts(curve)))
    steps = [rng.choices(SITUATIONS, (1, 2, 4, 4, 2), k=batch) for _ in range(300)]
    expected, spent = 0.0, 0.0
    for number, step in enumerate(steps):
        begin(of, [10] * batch)
        bids = [candidate.bid() for candidate in step]
        price = of.price(bids)
        trees = [tree_at(b, price) for b in bids]
        committed = [c.committed(t, rng) for c, t in zip(step, trees, strict=True)]
        predictions = observe(of, bids, list(map(outcome, trees, committed)))
        if number >= 50:  # the rate has settled
            expected += sum(each.tokens for each in predictions if each is not None)
            spent += curve.seconds(batch + sum(tree.drafted for tree in trees))
    adaptive = expected / spent
    fixed = []
    for size in range(40):
        cut = [[sorted(c.paths, reverse=True)[:size] for c in step] for step in steps[50:]]
        expected = sum(batch + sum(map(sum, trees)) for trees in cut)
        spent = sum(curve.seconds(batch + sum(map(len, trees))) for trees in cut)
        fixed.append(expected / spent)
    assert adaptive >= max(fixed)
    assert adaptive > 1.03 * fixed[0], "drafting pays at all"


def test_candidates_that_did_not_pay_are_learnt_all_the_same() -> None:
    """A node costs more than they are worth, until they are right."""
    tuner = AutoTuner(Calibration(), FixedCosts(StepCosts(Curve((1, 2), (1.0, 1.4)))))
    stage = Stage((Continuation((7,), 3, 1, 1),))
    drafted = []
    for step in range(150):
        [forecast] = begin(tuner, [10])
        tree = stage.grow(Auto(), forecast, price=lambda made: tuner.price([made]))
        drafted.append(tree.drafted)
        committed = (6,) if step < 50 else (7, 3) if tree.drafted else (7,)
        bid = stage.bid if forecast.floor <= 1.0 else None
        observe(tuner, [bid], [outcome(tree, committed)])
    assert sum(drafted[10:50]) == 0
    assert sum(drafted[-20:]) >= 15
