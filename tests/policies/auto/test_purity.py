"""A policy is pure: the same forecast and answers give the same tree, whatever is learnt."""

import dataclasses
from collections.abc import Mapping

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.methods.shipped_models import ASSETS
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.calibration_file import load as read
from draftwood.policies.auto.features import Codes
from draftwood.policies.auto.forecast import DraftForecast, Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import Bid, Price, RequestLoad, StepReport, StepTimes
from draftwood.tree import TokenTree
from tests.factories.scripted_sources import Row, offer
from tests.policies.auto.known_costs import LINEAR, outcome
from tests.policies.auto.stage import By, Stage, model

TABLE: Mapping[int, Row] = {
    0: [(1, 0.5), (3, 0.3), (9, 0.1)],
    2: [(5, 0.9)],
    3: [(4, 0.5), (8, 0.2)],
    4: [(6, 0.4)],
}
MODEL: Mapping[int, Row] = {0: [(3, 0.6), (7, 0.2)], 3: [(4, 0.7)], 4: [(6, 0.5)]}
CALIBRATION = ASSETS / "embedded" / "calibration.json"
DRAFT = Curve((1, 64), (0.01, 0.02))


def grown(policy: Auto, forecast: Forecast, of: AutoTuner | None = None) -> tuple[TokenTree, Bid]:
    """A tree from canned answers, at a given price or the tuner's."""
    # A model is asked where the others leave something open.
    offers, table = ((), {0: [(1, 0.03)]}) if policy.neural else (offer(1, 2, 5), TABLE)
    stage = Stage(offers, table, model(lambda token: MODEL.get(token, [(77, 0.01)])))
    price = (lambda bid: Price(0.01)) if of is None else lambda bid: of.price([bid])
    return stage.grow(policy, forecast, room=6, budget=64, price=price), stage.bid


def plain(tree: TokenTree) -> dict[str, object]:
    found = dataclasses.asdict(tree)
    return {name: v.tolist() if hasattr(v, "tolist") else v for name, v in found.items()}


def taught(policy: Auto, live: bool) -> list[tuple[dict[str, object], Bid]]:
    """Trees from the same forecast, before and after steps in which copies are always wrong."""
    costs = StepCosts(LINEAR, {"draft": DRAFT} if policy.neural else {})
    of = AutoTuner(
        Calibration(read(CALIBRATION).counts),
        FixedCosts(costs),
        dict.fromkeys(policy.neural, DraftForecast()),
    )
    load = RequestLoad(10, 100, 1.0, 0.0)
    (first,) = of.begin([load])
    if live:
        counts = of.calibration.at(0.0)

        def latest(codes: Codes) -> float:
            """From the counts as they are when it is called: no snapshot."""
            return counts.acceptance.probability(codes)

        first = dataclasses.replace(first, acceptance=By(latest))
    found = [grown(policy, first), grown(policy, first)]
    for _ in range(40):
        (forecast,) = of.begin([load])
        tree, bid = grown(policy, forecast, of)
        times = StepTimes(0.1, 0.1, 0.1)
        token = 3 if tree.drafted and tree.child(0, 3) is not None else 50
        committed = (token, 99) if token == 3 else (token,)
        of.observe(StepReport([bid], [outcome(tree, committed)], times))
    found.append(grown(policy, first))
    return [(plain(tree), bid) for tree, bid in found]


@pytest.mark.parametrize("policy", [Auto(), Auto(neural=("draft",))], ids=["free", "neural"])
def test_the_same_forecast_gives_the_same_tree(policy: Auto) -> None:
    (once, one), (twice, two), (late, three) = taught(policy, live=False)
    assert once == twice == late
    assert one.values == two.values == three.values
    assert one.levels == two.levels == three.levels
    assert (len(one.levels) > 0) == bool(policy.neural)


@pytest.mark.parametrize("policy", [Auto(), Auto(neural=("draft",))], ids=["free", "neural"])
def test_a_forecast_that_is_no_snapshot_does_not(policy: Auto) -> None:
    (once, _), (twice, _), (late, _) = taught(policy, live=True)
    assert once == twice, "nothing was learnt between these"
    assert once != late
