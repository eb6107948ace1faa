"""The price of a step against brute force over all that it could be."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from draftwood.bids import Bid
from draftwood.costs.curve import Curve, StepCosts
from draftwood.tuners.learnt import Tuner
from tests.tuners.made import (
    CURVES,
    FLAT,
    LINEAR,
    STEEP,
    STEPPED,
    admitted,
    begin,
    bid,
    offered,
    settle,
    tuner,
)


def worth(of: Tuner, bids: Sequence[Bid], price: float) -> float:
    """What drafting at this price adds to plain decoding, in tokens, net of its cost.

    Trees of a batch are padded to the largest; outside of the forward only real nodes cost.
    """
    batch, context, costs = of.batch, 10 * len(bids), of.costs.now
    chosen = [[p for p in offered([each]) if p >= price] for each in bids]
    target = costs.target
    padded = batch * (1 + max(map(len, chosen)))
    more = target.seconds(padded, context, batch) - target.seconds(batch, context, batch)
    more += costs.node * sum(map(len, chosen))
    return sum(map(sum, chosen)) - of.rate * more


LITTLE = 0.05
"""Tokens a request, below which drafting may be left alone."""


def check_price(of: Tuner, bids: Sequence[Bid]) -> None:
    """Among all sizes that a price can say, none is worth more than the one that it says."""
    everything = offered(bids)
    best = max(worth(of, bids, price) for price in (2.0, *everything))
    price = of.price(bids)
    taken = admitted(bids, price)
    assert taken == everything[: len(taken)]
    if taken:
        assert worth(of, bids, price) == pytest.approx(best)
    else:
        assert best < LITTLE * of.batch


@examples(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    costs=st.builds(
        StepCosts,
        target=st.sampled_from(CURVES),
        fixed=st.sampled_from([0.0, 0.3]),
        node=st.sampled_from([0.0, 0.01]),
        sequence=st.sampled_from([0.0, 0.2]),
    ),
    batch=st.integers(1, 4),
    limit=st.integers(0, 12),
    gain=st.sampled_from([1, 2, 3]),
)
def test_the_price_is_that_of_the_best_size(
    seed: int, costs: StepCosts, batch: int, limit: int, gain: int
) -> None:
    rng = random.Random(seed)
    of = tuner(costs)
    settle(of, gain, steps=rng.choice([0, 20]))
    begin(of, [10] * batch)
    bids = [bid(*(rng.random() ** 2 for _ in range(rng.randint(0, 12))), limit=limit)]
    bids += [bid(*(rng.random() ** 2 for _ in range(rng.randint(0, 12)))) for _ in range(batch - 1)]
    check_price(of, bids)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_equally_likely_is_taken_together_or_not_at_all(curve: Curve, batch: int) -> None:
    """Siblings of one cell have one chance, and a price cannot tell them apart."""
    for chances in ([0.9, 0.5, *[0.11] * 10], [0.2] * 6, [0.5, 0.5, 0.3, 0.3, 0.3, 0.05, 0.05]):
        check_price(tuner(curve, [10] * batch), [bid(*chances) for _ in range(batch)])


def test_worked_by_hand() -> None:
    """At a rate of one token a second, a node of :data:`LINEAR` must be worth 0.02."""
    of = tuner(LINEAR)
    settle(of, gain=1)
    begin(of, [10])
    assert of.rate == pytest.approx(1.0, rel=1e-3)
    assert of.price([bid(0.5, 0.021, 0.3, 0.019, 0.001)]) == 0.021
    settle(of, gain=3)
    begin(of, [10])
    # Three tokens a plain step, which 2 nodes make 4 % longer.
    assert of.rate == pytest.approx(3.0 / 1.04, rel=0.02)
    assert of.price([bid(0.5, 0.021, 0.3, 0.06, 0.055)]) == 0.06


def test_nothing_pays() -> None:
    of = tuner(STEEP)
    for chances in ((), (0.05, 0.02), (0.3,) * 8):
        price = of.price([bid(*chances)])
        assert price > 1.0
        assert bid(*chances).pool.admitted(price, 9, "auto").route == "plain"
    assert of.price([bid(0.9, limit=0)]) > 1.0
    # Where nodes are free, whatever may be right pays.
    assert tuner(FLAT).price([bid(0.05, 0.02)]) == 0.02


def test_a_price_is_one_for_all() -> None:
    """One request's good candidates are not drafted at another's expense."""
    of = tuner(Curve((1, 11), (1.0, 3.0)), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    rich, poor = bid(0.9, 0.8, 0.7), bid(0.25, 0.05)
    # A plain step of both takes 1.2 seconds, a node more in each 0.4, two thirds of a token; the
    # poor one's are in the forward already where the rich one's are.
    assert of.price([rich, poor]) == of.price([poor, rich]) == 0.05
    assert of.price([bid(0.9, 0.8, 0.6), bid(0.25)]) == 0.25
    assert of.price([bid(0.9, 0.8, 0.2), bid()]) == 0.8
    begin(of, [10])
    assert of.price([poor]) == 0.25


def test_a_longer_context_makes_nodes_dearer() -> None:
    curve = Curve((1, 1001), (1.0, 1.1), per_pair=1e-4)
    chances = [0.9**i for i in range(1, 60)]
    sizes = []
    for context in (0, 1000, 10_000):
        of = tuner(curve, [context])
        sizes.append(len(admitted([bid(*chances)], of.price([bid(*chances)]))))
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_the_cost_of_a_step_is_the_costs_own() -> None:
    """What it takes outside of forwards counts as well: the rate is tokens a second."""
    costs = StepCosts(STEPPED, fixed=0.5, node=0.01, sequence=0.2)
    of = tuner(costs, [10, 10, 10])
    settle(of, gain=1, batch=3)
    begin(of, [10, 10, 10])
    assert of.rate == pytest.approx(3.0 / costs.step(3, 30, 3), rel=1e-3)
