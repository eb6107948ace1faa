"""Which tokens of a batch's chains are verified, and what is learnt of them."""

import math
import random
from collections.abc import Sequence

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.engine.engine import Engine
from draftwood.engine.lockstep import draft
from draftwood.engine.request import Request
from draftwood.methods import method
from draftwood.policies.adaptive_chain.estimator import (
    INTERVAL,
    AcceptanceEstimator,
    log_odds,
    sigmoid,
)
from draftwood.policies.adaptive_chain.policy import AdaptiveChain
from draftwood.policies.adaptive_chain.tuner import AdaptiveTuner, Chain, most_per_second
from draftwood.protocols import (
    FREE,
    NOTHING_PAYS,
    Bid,
    Candidates,
    Drafter,
    Expand,
    Growth,
    Outcome,
    Price,
    RequestLoad,
    StepReport,
    StepTimes,
)
from draftwood.tree import TreeBuilder
from tests.factories.markov_target import FakeHost, MarkovTarget, SteadyCosts
from tests.factories.scripted_sources import NO_ROWS, drafter

# A token in a tree costs a tenth of a step.
LINEAR = Curve((1, 101), (1.0, 11.0))
DRAFT = Curve((1, 101), (0.1, 0.1))


def known(*probabilities: float) -> AcceptanceEstimator:
    """Predicts these probabilities, whatever the drafter's, and is trained."""
    found = AcceptanceEstimator(len(probabilities), warmup=0)
    found.intercepts = [math.log(p / (1.0 - p)) for p in probabilities]
    return found


def chain(*probabilities: float) -> Chain:
    return Chain.of([0.0] * len(probabilities), known(*probabilities))


def bid(*probabilities: float) -> Bid:
    own = chain(*probabilities)
    return Bid(own.survival, levels={"draft": (1,) * len(probabilities)}, report=own)


def tuner(
    costs: StepCosts, requests: int = 1, warmup: int = 0, *, at_once: bool = False
) -> AdaptiveTuner:
    made = AdaptiveTuner(AcceptanceEstimator(7, warmup), FixedCosts(costs), at_once=at_once)
    made.begin([RequestLoad(10, 50, 1.0, 0.0)] * requests)
    return made


def test_survival_is_the_running_product() -> None:
    assert chain(0.8, 0.5, 0.25).survival == pytest.approx([0.8, 0.4, 0.1])


@pytest.mark.parametrize(
    ("values", "requests", "node", "count"),
    [
        # (1 + .8) / 1.1 = 1.64, (1 + 1.2) / 1.2 = 1.83, (1 + 1.3) / 1.3 = 1.77
        ((0.8, 0.4, 0.1), 1, 0.1, 2),
        ((0.8, 0.4, 0.1), 1, 0.0, 3),
        # (1 + .8) / 1.9 < 1
        ((0.8, 0.4, 0.1), 1, 0.9, 0),
        # 4 / 1, 4.8 / 1.1 = 4.36, 5.2 / 1.2 = 4.33
        ((0.8, 0.4, 0.1), 4, 0.1, 1),
        ((), 3, 0.1, 0),
        # A token more than two of one value would pay for all of them or for none.
        ((0.5, 0.5, 0.5), 1, 0.2, 3),
    ],
)
def test_as_many_are_verified_as_make_the_most_tokens_per_second(
    values: Sequence[float], requests: int, node: float, count: int
) -> None:
    found, rate = most_per_second(values, requests, lambda n: 1.0 + node * n)
    assert found == count
    assert rate == pytest.approx((requests + sum(values[:count])) / (1.0 + node * count))


def test_equal_tokens_are_verified_together() -> None:
    # Two of them cost nothing and the third does: no price keeps two.
    costs = {0: 1.0, 1: 1.0, 2: 1.0, 3: 3.0}
    assert most_per_second([0.5, 0.5, 0.5], 1, costs.__getitem__)[0] == 0
    assert most_per_second([0.6, 0.5, 0.4], 1, costs.__getitem__)[0] == 2


def test_the_table_has_sizes_of_the_whole_batch() -> None:
    stepped = Curve((1, 8, 9, 64), (1.0, 1.0, 2.0, 2.0))
    one = tuner(StepCosts(stepped))
    assert chain(0.9, 0.9, 0.9, 0.9, 0.9).kept(one.price([bid(0.9, 0.9, 0.9, 0.9, 0.9)])) == 5
    four = tuner(StepCosts(stepped), requests=4)
    sure, doubtful = bid(0.9, 0.8, 0.7), bid(0.5, 0.4, 0.3)
    price = four.price([sure, doubtful, doubtful, doubtful])
    # Four of the eight rows are roots; the four likeliest draft tokens fill the rest, but the three
    # requests that are alike get their tokens together or not at all.
    assert [each.report.kept(price) for each in (sure, doubtful)] == [3, 0]


def test_slots_compete_across_requests() -> None:
    two = tuner(StepCosts(LINEAR), requests=2)
    sure, doubtful = bid(0.95, 0.95, 0.95, 0.95, 0.95), bid(0.3, 0.9)
    price = two.price([sure, doubtful])
    # Token 5 of the one outranks token 1 of the other: .77 > .3.
    assert sure.report.kept(price) == 5
    assert doubtful.report.kept(price) == 0
    assert price.least == pytest.approx(0.95**5)


def test_drafting_is_paid_whatever_is_verified() -> None:
    """So a dearer drafter has more of its tokens verified."""
    cheap = tuner(StepCosts(LINEAR, {"draft": Curve((1, 2), (0.001, 0.001))}))
    dear = tuner(StepCosts(LINEAR, {"draft": Curve((1, 2), (1.0, 1.0))}))
    own = bid(0.5, 0.5, 0.5)
    # (1 + .5 + ...) / (1 + .1 n + 3 drafting): n = 1, 2, 3
    assert own.report.kept(cheap.price([own])) == 2
    assert own.report.kept(dear.price([own])) == 3
    once = tuner(StepCosts(LINEAR, {"draft": Curve((1, 2), (1.0, 1.0))}), at_once=True)
    assert once._draft_seconds([own, own]) == 1.0
    assert dear._draft_seconds([own, own]) == 3.0


def test_nothing_may_pay() -> None:
    assert tuner(StepCosts(Curve((1, 2), (1.0, 2.0)))).price([bid(0.9, 0.9)]) == NOTHING_PAYS


def test_whole_chains_are_verified_until_acceptance_is_known() -> None:
    young = tuner(StepCosts(Curve((1, 2), (1.0, 2.0))), warmup=2)
    for _ in range(2 * INTERVAL):
        assert young.price([bid(0.1)]) == FREE
        young.acceptance.step()
    assert young.price([bid(0.1)]) == NOTHING_PAYS


@pytest.mark.parametrize("q", [1e-6, 0.2, 0.5, 0.999])
def test_log_odds(q: float) -> None:
    assert log_odds(math.log(q)) == pytest.approx(math.log(q / (1.0 - q)), rel=1e-6)
    assert sigmoid(log_odds(math.log(q))) == pytest.approx(q)


def test_log_odds_are_bounded() -> None:
    assert [log_odds(0.0), log_odds(1e-7), log_odds(-math.inf)] == [40.0, 40.0, -40.0]
    assert sigmoid(-1000.0) == 0.0


def test_only_verified_tokens_behind_accepted_ones_teach() -> None:
    one, other = (AcceptanceEstimator(4, 0) for _ in range(2))
    one.observe([1.0, 1.0, 1.0, 1.0], verified=2, accepted=2)
    other.observe([1.0, 1.0, -9.0, 5.0], verified=2, accepted=2)
    assert one._count == [1, 1, 0, 0]
    assert one.__dict__ == other.__dict__
    one.observe([1.0] * 4, verified=4, accepted=1)
    assert one._count == [2, 2, 0, 0]


def test_a_fit_is_a_damped_newton_step() -> None:
    """By hand: x = 0, so that the slope stays, and p = sigmoid(1.5) before the fit."""
    found = AcceptanceEstimator(2, 0)
    for step in range(INTERVAL):
        found.observe([0.0, 0.0], verified=1, accepted=int(step < 20))
        found.step()
    p = sigmoid(1.5)
    wanted = 1.5 + (20 - 100 * p) / (100 * p * (1 - p) + 1e-3) * 100 / 150
    assert found.intercepts == pytest.approx([wanted, 1.5])
    assert found.slope == 0.0


def test_it_learns_the_acceptance_of_each_position() -> None:
    """Tokens are accepted by a law of the same form; deeper ones less often."""
    rng = random.Random(0)
    slope, intercepts = 0.6, (1.0, 0.2, -0.5)
    found = AcceptanceEstimator(3, 0)
    for _ in range(60 * INTERVAL):
        odds = [rng.gauss(1.0, 1.5) for _ in range(3)]
        accepted = 0
        while accepted < 3 and rng.random() < sigmoid(
            slope * odds[accepted] + intercepts[accepted]
        ):
            accepted += 1
        found.observe(odds, verified=3, accepted=accepted)
        found.step()
    assert found.slope == pytest.approx(slope, abs=0.25)
    for position, wanted in enumerate(intercepts):
        for odds_of in (0.0, 2.0):
            p = sigmoid(slope * odds_of + wanted)
            assert found.probability(position, odds_of) == pytest.approx(p, abs=0.12)


def test_surer_drafts_never_become_less_likely() -> None:
    found = AcceptanceEstimator(1, 0)
    for step in range(10 * INTERVAL):
        sure = step % 2 == 0
        found.observe([4.0 if sure else -4.0], verified=1, accepted=int(not sure))
        found.step()
    assert found.slope == 0.0


def test_a_step_is_predicted_and_observed() -> None:
    own = tuner(StepCosts(LINEAR), requests=2)
    tree = TreeBuilder(99)
    tree.add_chain([5, 6], "draft")
    given = bid(0.8, 0.5, 0.5)
    done = Outcome(tree.build("adaptive"), (1,), (5, 9), NO_ROWS)
    plain = Outcome(TreeBuilder(3).build("plain"), (), (4,), NO_ROWS)
    found, nothing = own.observe(StepReport([given, None], [done, plain], StepTimes(0.1, 1.0)))
    assert nothing is None
    assert found is not None
    assert found.tokens == pytest.approx(1.0 + 0.8 + 0.4)
    assert found.candidates.sources == ("draft", "draft")
    assert found.candidates.probabilities == pytest.approx([0.8, 0.5])
    assert found.candidates.taken == [True, False]
    assert own.acceptance._count[:3] == [1, 1, 0]


def test_a_step_in_which_a_forward_was_recorded_teaches_no_costs() -> None:
    tree = TreeBuilder(99)
    tree.add_chain([5, 6], "draft")
    done = Outcome(tree.build("adaptive"), (1,), (5, 9), NO_ROWS)
    for recorded in (False, True):
        own = tuner(StepCosts(LINEAR))
        own.costs = LiveCosts(StepCosts(LINEAR))
        before = own.costs.now(1)
        own.observe(StepReport([bid(0.8, 0.5)], [done], StepTimes(0.1, 50.0), recorded))
        assert (own.costs.now(1) is before) == recorded
        assert own.acceptance._count[:3] == [1, 1, 0]


TABLE = {0: [(1, 0.9)], 1: [(2, 0.5)], 2: [(3, 0.25)], 3: [(4, 0.8)]}


def test_the_chain_is_the_drafters_likeliest_tokens() -> None:
    sources = drafter(TABLE)
    tree = sources.grow(AdaptiveChain(budget=3))
    assert tree.tokens.tolist() == [0, 1, 2, 3]
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert (tree.route, tree.sources[1:]) == ("adaptive", ("draft",) * 3)
    assert all(query.k == 1 for query in sources.asked if isinstance(query, Expand))
    assert drafter({}).grow(AdaptiveChain()).route == "plain"


class Ranked(Drafter):
    """Answers from the table above."""

    def __init__(self) -> None:
        self.sources = drafter(TABLE)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        return [self.sources.expand(query) for query in queries]


@pytest.mark.parametrize(("least", "kept"), [(0.0, 4), (0.3, 2), (0.9, 0)])
def test_the_first_tokens_are_verified_that_the_price_allows(least: float, kept: int) -> None:
    acceptance = known(0.8, 0.5, 0.5, 0.5)
    growths = [Growth(0, room=9, budget=9, forecast=acceptance)]
    offered: list[Bid] = []

    def price(bids: Sequence[Bid]) -> Price:
        offered.extend(bids)
        return Price(least)

    [found] = draft(AdaptiveChain(budget=4), {"draft": Ranked()}, [0], growths, [None], price)
    assert found.tree.tokens.tolist() == [0, 1, 2, 3, 4][: kept + 1]
    assert found.tree.route == ("adaptive" if kept else "plain")
    assert offered[0].values == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert offered[0].levels == {"draft": (1, 1, 1, 1)}
    wanted = [log_odds(math.log(q)) for q in (0.9, 0.5, 0.25, 0.8)]
    assert offered[0].report.odds == pytest.approx(wanted, abs=1e-6)


class Machine(FakeHost):
    """A machine on which a token in a tree costs this share of a step."""

    share_of_a_step = 0.0

    def costs(self, key: CostsOf) -> LiveCosts:
        forward = Curve((1, 101), (1.0, 1.0 + 100 * self.share_of_a_step))
        return SteadyCosts(StepCosts(forward, {"draft": Curve((1, 2), (0.01, 0.01))}))


def test_dear_tokens_are_verified_less_and_none_changes() -> None:
    target = MarkovTarget(sharpness=1.0)
    drafted = {}
    for share in (0.0, 0.2, 5.0):
        host = Machine(target.info)
        host.share_of_a_step = share
        engine = Engine(target, method("adaptive-chain:warmup=0:draft=x"), host=host)
        found = engine.generate([Request([3, 1, 4 + i], 30) for i in range(3)])
        assert [c.tokens for c in found] == [target.greedy([3, 1, 4 + i], 30) for i in range(3)]
        drafted[share] = sum(c.tally.drafted for c in found) / sum(c.tally.steps for c in found)
    assert drafted[0.0] > drafted[0.2] > drafted[5.0] == 0.0
