"""The discount on copied candidates, against brute force over the sizes of every step."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

import numpy as np
import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.policies.auto import copies
from draftwood.policies.auto.copies import copy_discount
from draftwood.policies.auto.features import TABLE
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Report
from draftwood.protocols import NOTHING_PAYS, Bid, Price
from draftwood.tree import ROOT
from tests.factories.scripted_sources import offer, paths
from tests.policies.auto.codes import by_place
from tests.policies.auto.known_costs import begin, bid, chain, outcome, run, tuner
from tests.policies.auto.stage import BySource, Stage, given

MOST = 64
SIZES = range(1, MOST + 1)


def copy_of(probability: float, length: int = MOST) -> list[float]:
    """Path probabilities of a copied chain, the root's first."""
    return [*accumulate([probability] * length, mul, initial=1.0)]


def line(first: float, slope: float) -> Callable[[int], float]:
    """Tokens in the time of a step, by its nodes."""
    return lambda nodes: first + slope * nodes


def discount_of(path: Sequence[float], tokens: Callable[[int], float]) -> float:
    return copy_discount(path[1:], (), tokens, MOST)


def size_at(discount: float, path: Sequence[float], tokens: Callable[[int], float]) -> int:
    """The nodes for which expected tokens less those made meanwhile are most."""
    return max(SIZES, key=lambda n: discount * sum(path[1 : n + 1]) - tokens(n))


@pytest.mark.parametrize("probability", [0.6, 0.8, 0.95, 0.99])
@pytest.mark.parametrize(
    "tokens", [line(1.1, 0.01), line(1.3, 0.03), line(2.0, 0.002), line(2.0, 0.0)]
)
def test_a_copy_that_ends_is_drafted_in_the_least_time(
    monkeypatch: pytest.MonkeyPatch, probability: float, tokens: Callable[[int], float]
) -> None:
    monkeypatch.setattr(copies, "_FREE", 1.0)
    path = copy_of(probability)
    discount = discount_of(path, tokens)
    assert 0.0 < discount < 1.0

    def gained(nodes: int) -> float:
        """Tokens of the whole copy over those of average steps: as many steps until it ends."""
        steps = 1.0 / (1.0 - path[nodes])
        return steps * (sum(path[: nodes + 1]) - tokens(nodes))

    best = max(map(gained, SIZES))
    found = size_at(discount, path, tokens)
    assert gained(found) == pytest.approx(best)
    assert found == MOST or gained(size_at(1.0, path, tokens)) < best - 1e-6


@pytest.mark.parametrize("probability", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("tokens", [line(1.1, 0.03), line(2.0, 0.1)])
def test_a_copy_that_never_ends_is_drafted_at_the_highest_rate(
    monkeypatch: pytest.MonkeyPatch, probability: float, tokens: Callable[[int], float]
) -> None:
    monkeypatch.setattr(copies, "_FREE", 0.0)
    path = copy_of(probability)

    def rate(nodes: int) -> float:
        return sum(path[: nodes + 1]) / tokens(nodes)

    found = size_at(discount_of(path, tokens), path, tokens)
    assert rate(found) == pytest.approx(max(map(rate, SIZES)))
    assert found == MOST or rate(size_at(1.0, path, tokens)) < rate(found) - 1e-6


def test_a_copy_that_promises_less_than_an_average_step_has_no_discount() -> None:
    assert discount_of(copy_of(0.5), line(2.0, 0.05)) == 1.0
    assert copy_discount((), (0.9, 0.9), line(1.0, 0.0), MOST) == 1.0, "nothing copied"


def test_candidates_of_other_sources_belong_to_the_step() -> None:
    pool = Pool(99, BySource((0.6, 0.0, 0.0)), floor=0.0, most=MOST)
    pool.copy((1,), by_place(3), "context")
    pool.offer(TABLE, "adjacency", [ROOT], np.array([[2, 3, 4]]), np.zeros((1, 3), np.float32))
    pool.path[1:] = [0.6, 0.7, 0.4, 0.05]
    # Two of the others pay: with the copied one they are three nodes, of 2.7 tokens in all.
    found = pool.discount(line(1.2, 0.1), 0.1, MOST)
    assert found == pytest.approx((1.5 - 0.5) / (2.7 - 0.5))
    assert pool.discount(line(1.2, 0.1), 0.1, 2) == 1.0, "there is no room for it"


def test_a_chain_has_the_discount_of_its_path() -> None:
    found = []
    for single in (False, True):
        pool = Pool(99, BySource((0.6, 0.0, 0.0)), floor=0.0, most=MOST, chain=single)
        pool.copy((1, 2), by_place(3), "context")
        pool.copy((3, 4, 5), by_place(3, preferred=False), "context")
        pool.path[1:] = [0.6, 0.5, 0.3, 0.2, 0.1]
        found.append(pool.discount(line(1.0, 0.0), 0.1, MOST))
    assert found == pytest.approx([0.5 / (1.0 + 1.7 - 0.5), 0.5 / (1.0 + 1.1 - 0.5)])


def test_no_more_nodes_are_weighed_than_may_be_drafted() -> None:
    path, tokens = copy_of(0.99, 20), line(1.5, 0.0)
    for most in (1, 5, 20):
        found = copy_discount(path[1:], (), tokens, most)
        assert found == pytest.approx(1.0 / (sum(path[: most + 1]) - 0.5))


def drafted(bid: Bid) -> Price:
    """What the tuner would say where a node costs 0.05 tokens."""
    return Price(0.05) if bid.values else NOTHING_PAYS


@pytest.mark.parametrize(("first", "nodes"), [(1.2, 10), (1.6, 12), (100.0, 21)])
def test_a_long_copy_is_drafted_in_several_steps(first: float, nodes: int) -> None:
    tokens, made = range(1, 41), line(first, 0.05)
    stage = Stage(offer(*tokens))
    forecast = given(copied=0.87, price=0.05, tokens=made)
    tree = stage.grow(Auto(table=""), forecast, price=drafted)
    assert paths(tree)[-1] == tuple(tokens[:nodes])
    path = copy_of(0.87, 40)
    shares = [(made(n) - 0.5) / (sum(path[: n + 1]) - 0.5) for n in range(1, 41)]
    discount = min(1.0, *shares)
    assert discount * path[nodes] >= 0.05 > discount * path[nodes + 1]


@pytest.mark.parametrize("batch", [1, 2, 4, 16])
@pytest.mark.parametrize("probability", [0.8, 0.9, 0.97, 0.99])
@pytest.mark.parametrize("slope", [0.001, 0.005, 0.02])
def test_a_copy_beside_other_requests_is_drafted_in_the_least_time(
    monkeypatch: pytest.MonkeyPatch, batch: int, probability: float, slope: float
) -> None:
    monkeypatch.setattr(copies, "_FREE", 1.0)
    curve = Curve((1, 1001), (1.0, 1.0 + 1000 * slope))
    of = tuner(StepCosts(curve), [10] * batch)
    # Steps of four nodes and two tokens, of each request.
    run(of, 300, [bid(0.9)] * batch, [outcome(chain(4), (0, 1))] * batch, [10] * batch)
    first, *_ = begin(of, [10] * batch)
    pool = Pool(99, BySource((probability, 0.0, 0.0)), floor=0.0, most=MOST)
    pool.copy(range(MOST), by_place(3), "context")
    discount = pool.discount(first.tokens, 0.1, MOST)
    path, usual = pool.path, curve.seconds(5 * batch)
    rate = of.rate

    def gained(nodes: int) -> float:
        """Tokens of the batch until the copy ends, over those of average steps."""
        longer = curve.seconds(5 * batch - 4 + nodes) - usual
        return (sum(path[: nodes + 1]) - 2.0 - rate * longer) / (1.0 - path[nodes])

    prices = [rate * (curve.seconds(batch + n) - curve.seconds(batch)) for n in (0, *SIZES)]
    found = max((0, *SIZES), key=lambda n: discount * sum(path[1 : n + 1]) - prices[n])
    best = max(map(gained, SIZES))
    assert best > 0.0
    assert gained(found) == pytest.approx(best, rel=0.02)
    report = Report(pool, MOST, discount=discount)
    price = of.price([Bid(report.values, report=report), *[bid(0.9)] * (batch - 1)])
    assert len(report.chosen(price)) == pytest.approx(found, abs=1)
