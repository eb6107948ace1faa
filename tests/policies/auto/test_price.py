"""The price of a step against brute force over all that it could be."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from draftwood.costs.curve import Curve, StepCosts
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import NOTHING_PAYS, Bid, Price
from tests.policies.auto.known_costs import (
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
    tree_at,
    tuner,
)


def worth(of: AutoTuner, taken: Sequence[float]) -> float:
    """What drafting candidates of these values adds to plain decoding, in tokens net of cost."""
    batch, context, costs = of.batch, 10 * of.batch, of.costs.now(of.batch)
    target, nodes = costs.target, len(taken)
    more = target.seconds(batch + nodes, context, batch) - target.seconds(batch, context, batch)
    return sum(taken) - of.rate * (more + costs.node * nodes)


LITTLE = 0.05
"""Tokens a request, below which drafting may be left alone."""


def check_price(of: AutoTuner, bids: Sequence[Bid]) -> None:
    """No choice of candidates is worth more than what the price says.

    Candidates of one value are taken together, or not at all.
    """
    best_first = offered(bids)
    price = of.price(bids)
    found = admitted(bids, price)
    assert found == best_first[: len(found)]
    whole = [
        best_first[:size]
        for size in range(1 + len(best_first))
        if size in (0, len(best_first)) or best_first[size] < best_first[size - 1]
    ]
    best = max(worth(of, taken) for taken in whole)
    if found:
        assert worth(of, found) == pytest.approx(best)
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
    bids = [
        bid(
            *(rng.random() ** 2 for _ in range(rng.randint(0, 12))),
            limit=1000 if place else limit,
            worth=rng.choice([0.1, 0.5, 1.0, 3.0]),
        )
        for place in range(batch)
    ]
    check_price(of, bids)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("batch", [1, 3])
def test_of_equally_likely_candidates_as_many_are_taken_as_pay(curve: Curve, batch: int) -> None:
    for probabilities in (
        [0.9, 0.5, *[0.11] * 10],
        [0.2] * 6,
        [0.5, 0.5, 0.3, 0.3, 0.3, 0.05, 0.05],
    ):
        check_price(tuner(curve, [10] * batch), [bid(*probabilities) for _ in range(batch)])


def test_worked_by_hand() -> None:
    """At a rate of one token a second, a node of :data:`LINEAR` must be worth 0.02."""
    of = tuner(LINEAR)
    settle(of, gain=1)
    begin(of, [10])
    assert of.rate == pytest.approx(1.0, rel=1e-3)
    assert taken(of, bid(0.5, 0.021, 0.3, 0.019, 0.001)) == [[0.5, 0.3, 0.021]]
    settle(of, gain=3)
    begin(of, [10])
    # Three tokens a plain step, which 2 nodes make 4 % longer.
    assert of.rate == pytest.approx(3.0 / 1.04, rel=0.02)
    assert taken(of, bid(0.5, 0.021, 0.3, 0.06, 0.055)) == [[0.5, 0.3, 0.06]]


def taken(of: AutoTuner, *bids: Bid) -> list[list[float]]:
    price = of.price(bids)
    return [admitted([each], price) for each in bids]


def test_nothing_pays() -> None:
    of = tuner(STEEP)
    for probabilities in ((), (0.05, 0.02), (0.3,) * 8):
        price = of.price([bid(*probabilities)])
        assert price == NOTHING_PAYS
        assert tree_at(bid(*probabilities), price).route == "plain"
    assert of.price([bid(0.9, limit=0)]) == NOTHING_PAYS
    # Whatever a request's tokens are worth.
    heavy = bid(0.8, worth=3.0)
    of = tuner(STEPPED, [10] * 4)
    settle(of, gain=3, batch=4)
    begin(of, [10] * 4)
    assert of.price([heavy]) == NOTHING_PAYS
    assert tree_at(heavy, NOTHING_PAYS).route == "plain"
    # Where nodes are free, whatever may be right pays.
    assert taken(tuner(FLAT), bid(0.05, 0.02)) == [[0.05, 0.02]]


def test_a_price_is_one_for_all() -> None:
    """The best candidates of all requests are drafted, however many each request has of them."""
    of = tuner(Curve((1, 11), (1.0, 3.0)), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    # A plain step of both takes 1.2 seconds; a node 0.2 more, a third of a token.
    rich, poor = (0.9, 0.8, 0.3), (0.4, 0.25)
    assert taken(of, bid(*rich), bid(*poor)) == [[0.9, 0.8], [0.4]]
    assert taken(of, bid(*poor), bid(*rich)) == [[0.4], [0.9, 0.8]]
    assert taken(of, bid(0.9, 0.8, 0.6, 0.34), bid(0.32)) == [[0.9, 0.8, 0.6, 0.34], []]
    assert taken(of, bid(0.9), bid()) == [[0.9], []]
    begin(of, [10])
    assert taken(of, bid(0.25, 0.05)) == [[0.25]]


def test_each_node_pays_its_own_cost_outside_of_the_forward() -> None:
    of = tuner(StepCosts(FLAT, node=0.1), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    assert of.rate == pytest.approx(2.0, rel=1e-3)
    assert taken(of, bid(0.9, 0.5, 0.19), bid(0.21, 0.15)) == [[0.9, 0.5], [0.21]]


def test_a_heavier_request_has_less_likely_candidates_taken() -> None:
    of = tuner(Curve((1, 11), (1.0, 3.0)), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    ahead, behind = bid(0.9, 0.8, 0.6, worth=0.5), bid(0.6, 0.2, 0.1, worth=2.0)
    # A node costs a third of a token: more than 0.6 and 0.1, as each request weighs them.
    price = of.price([ahead, behind])
    assert [tree_at(bid, price).drafted for bid in (ahead, behind)] == [2, 2]
    # What a node must be worth outside of the forward is 0.2 of the usual request's tokens.
    of = tuner(StepCosts(FLAT, node=0.1), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    behind = bid(0.11, 0.09, worth=2.0)
    price = of.price([ahead, behind])
    assert [tree_at(bid, price).drafted for bid in (ahead, behind)] == [3, 1]
    assert tree_at(bid(0.3, 0.3, worth=0.5), price).route == "plain"


def test_settled_nodes_are_in_the_forward_whatever_their_value() -> None:
    """Where the first nodes beyond plain decoding are the dearest, settled ones pay for them."""
    of = tuner(Curve((1, 2, 3, 22), (1.0, 1.0, 2.0, 2.1)), [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    for settled in (0, 1, 2):
        price = of.price([bid(0.5, 0.01, settled=settled), bid(0.3, 0.2)])
        assert price == (Price(0.2) if settled else NOTHING_PAYS)


def test_a_longer_context_makes_nodes_dearer() -> None:
    curve = Curve((1, 1001), (1.0, 1.1), per_pair=1e-4)
    probabilities = [0.9**i for i in range(1, 60)]
    sizes = []
    for context in (0, 1000, 10_000):
        of = tuner(curve, [context])
        sizes.append(len(admitted([bid(*probabilities)], of.price([bid(*probabilities)]))))
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_the_cost_of_a_step_is_the_costs_own() -> None:
    """What it takes outside of forwards counts as well: the rate is tokens a second."""
    costs = StepCosts(STEPPED, fixed=0.5, node=0.01, sequence=0.2)
    of = tuner(costs, [10, 10, 10])
    settle(of, gain=1, batch=3)
    begin(of, [10, 10, 10])
    assert of.rate == pytest.approx(3.0 / costs.step(3, 30, 3), rel=1e-3)
