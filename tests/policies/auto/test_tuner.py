"""What steps teach, and what is expected of the next one."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.errors import DraftwoodError
from draftwood.policies.auto.calibration import Calibration, Counts
from draftwood.policies.auto.calibration_file import save
from draftwood.policies.auto.features import NEURAL, TABLE
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import Bid, Outcome, RequestLoad, StepReport, StepTimes, TargetInfo
from draftwood.tree import ROOT
from tests.factories.markov_target import FakeHost
from tests.policies.auto.known_costs import (
    FLAT,
    LINEAR,
    STEEP,
    Sure,
    TrueCosts,
    admitted,
    begin,
    bid,
    bid_of,
    chain,
    codes_of,
    loads,
    observe,
    outcome,
    plain,
    settle,
    tree_at,
    tuner,
)


def test_the_rate_does_not_depend_on_the_batch() -> None:
    found = {}
    for gain, batch in itertools.product((1, 2), (1, 4)):
        of = tuner(FLAT)
        settle(of, gain, batch)
        begin(of, [10])
        found[gain, batch] = of.rate
        begin(of, [10] * 4)
        assert of.rate == pytest.approx(4 * found[gain, batch]), "four requests make four times it"
    assert found[1, 1] == pytest.approx(1.0, rel=1e-3)
    assert found[2, 1] == pytest.approx(2.0, rel=1e-3)
    assert found[1, 4] == pytest.approx(found[1, 1], rel=1e-3)
    assert found[2, 4] == pytest.approx(found[2, 1], rel=1e-3)


def test_a_batch_that_shrinks_does_not_move_the_rate() -> None:
    of = tuner(Curve((1, 2), (1.0, 1.0), per_sequence=0.5))
    settle(of, gain=2, batch=8)
    assert of.rate == pytest.approx(16 / 4.5, rel=1e-3)
    begin(of, [10])
    assert of.rate == pytest.approx(2.0, rel=1e-3)
    settle(of, gain=2, batch=1, steps=1)
    assert of.rate == pytest.approx(2.0, rel=1e-3)


def test_a_machine_that_slows_down_as_a_whole_changes_no_price() -> None:
    slow = Curve(LINEAR.sizes, tuple(100 * seconds for seconds in LINEAR.base))
    found = []
    for curve in (LINEAR, slow):
        of = tuner(curve)
        settle(of, gain=2, steps=30)
        begin(of, [10])
        found.append((of.price([bid(0.5, 0.4, 0.1, 0.03, 0.02)]), of.rate))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(100 * found[1][1])


def test_the_rate_pays_for_nodes_and_for_levels() -> None:
    rates = []
    draft = Curve((1, 64), (0.5, 0.5))
    for nodes, levels in ((1, ()), (26, ()), (1, (1, 4))):
        of = tuner(StepCosts(LINEAR, {"draft": draft}))
        for _ in range(200):
            begin(of, [10])
            made = bid(0.9, levels=levels)
            of.price([made])
            observe(of, [made], [outcome(chain(nodes), (0, 1))])
        begin(of, [10])
        rates.append(of.rate)
    # Two tokens a step, of 1.02 seconds, of 1.52, and of 1.02 with two levels of half a second.
    assert rates == pytest.approx([2 / 1.02, 2 / 1.52, 2 / 2.02], rel=1e-3)


def test_levels_of_a_batch_are_shared_and_as_wide_as_the_widest() -> None:
    draft = Curve((1, 101), (0.1, 1.1))
    of = tuner(StepCosts(FLAT, {"draft": draft}), [10, 10])
    for _ in range(200):
        begin(of, [10, 10])
        bids = [bid(0.9, levels=(1, 8)), bid(0.9, levels=(3,))]
        of.price(bids)
        observe(of, bids, [outcome(chain(1), (0, 1))] * 2)
    begin(of, [10, 10])
    # Three nodes of both requests, and eight of one.
    expected = 1.0 + draft.seconds(6) + draft.seconds(8)
    assert of.rate == pytest.approx(4 / expected, rel=1e-3)


def test_a_level_costs_the_tokens_made_meanwhile() -> None:
    draft = Curve((1, 101), (0.1, 1.1))
    of = tuner(StepCosts(FLAT, {"draft": draft}), [10, 10])
    settle(of, gain=1, batch=2)
    forecast, _ = begin(of, [10, 10])
    # Of the two requests' forward over 16 nodes, half; and half of their rate is 1 a second.
    assert forecast.level_costs[8] == pytest.approx(draft.seconds(16), rel=1e-3)
    assert forecast.level_costs[0] == 0.0
    assert begin(tuner(FLAT), [10])[0].level_cost(8) == 0.0, "no drafter has a model"


def test_reading_a_backlog_is_spread_over_the_steps_that_are_left() -> None:
    draft = Curve((1, 101), (0.1, 1.1))
    of = tuner(StepCosts(FLAT, {"draft": draft}))
    settle(of, gain=1)

    def cost(backlog: int, left: int, pace: float) -> float:
        return of.begin([RequestLoad(10, left, pace, 0.0, backlog)], queued=False)[0].catch_up

    # A token a second is generated meanwhile.
    assert cost(50, 1, 1.0) == pytest.approx(draft.seconds(50), rel=1e-3)
    assert cost(50, 100, 1.0) == pytest.approx(draft.seconds(50) / 100, rel=1e-3)
    assert cost(50, 100, 4.0) == pytest.approx(draft.seconds(50) / 25, rel=1e-3)
    assert cost(0, 1, 1.0) == 0.0
    assert begin(tuner(FLAT), [10])[0].catch_up == 0.0, "no drafter has a model"


def test_reading_a_backlog_does_not_make_levels_seem_slow() -> None:
    class Told(TrueCosts):
        def searched(self, *step: float) -> None:
            told.append(step)

    draft = Curve((1, 101), (0.1, 1.1))
    told: list[tuple[float, ...]] = []
    of = AutoTuner(Calibration(), Told(StepCosts(FLAT, {"draft": draft})))
    for levels in ((), (3,)):
        of.begin([RequestLoad(10, 100, 1.0, 0.0, backlog=50)], queued=False)
        made = bid(0.9, levels=levels)
        of.price([made])
        observe(of, [made], [outcome(chain(1), (0, 1))])
    expected = [0.0, draft.seconds(3) + draft.seconds(50)]
    assert [levels for _, _, levels in told] == pytest.approx(expected)


def test_a_level_is_paid_for_by_those_that_ask_together() -> None:
    draft = Curve((1, 101), (0.1, 1.1))
    found = {}
    for asking in (0, 1, 2, 3):
        of = tuner(StepCosts(FLAT, {"draft": draft}), [10] * 4)
        for _ in range(200):
            begin(of, [10] * 4)
            bids = [bid(0.9, levels=(2, 2)[: 1 + (i == 0)] if i < asking else ()) for i in range(4)]
            of.price(bids)
            observe(of, bids, [outcome(chain(1), (0, 1))] * 4)
        forecast = begin(of, [10] * 4)[0]
        found[asking] = forecast.level_costs[8] / of.rate
    # Whoever has not asked yet expects all to. Of two forwards one was for the first request alone.
    assert found[0] == pytest.approx(draft.seconds(32) / 4)
    assert found[1] == pytest.approx(draft.seconds(8))
    assert found[2] == pytest.approx(draft.seconds(16) / 2), "one and a half is nearer to two"
    assert found[3] == pytest.approx(draft.seconds(16) / 2), "three and one"


def floors(curve: Curve, *probabilities: float) -> tuple[AutoTuner, list[float]]:
    """A tuner to which the same candidates were bid many times, and its floors of late."""
    of, seen = tuner(curve), []
    for _ in range(80):
        (forecast,) = begin(of, [10])
        seen.append(forecast.floor)
        if forecast.floor <= 1.0:  # else the policy looks at nothing, and bids for nothing
            of.price([bid(*probabilities)])
    assert all(0.0 < floor < 0.5 or floor > 1.0 for floor in seen)
    return of, seen[-16:]


def test_the_floor_follows_the_price_and_has_bounds() -> None:
    found = {}
    for name, curve in (("free", FLAT), ("cheap", LINEAR), ("dear", Curve((1, 21), (1.0, 3.0)))):
        of, seen = floors(curve, *(0.9**i for i in range(1, 80)))
        assert max(seen) == pytest.approx(min(seen), rel=0.02), "it settles"
        found[name] = seen[-1]
        if name != "free":
            # A candidate may come to be worth its cost: the floor lies below the price.
            bids = [bid(*(0.9**i for i in range(1, 80)))]
            assert found[name] < min(admitted(bids, of.price(bids)))
    assert found["free"] < found["cheap"] < found["dear"]


class Searching(TrueCosts):
    """Looking for candidates takes so many seconds."""

    seconds = 0.0

    def search(self, batch: int) -> float:
        return self.seconds * batch


def searches(seconds: float, *probabilities: float, batch: int = 2, steps: int = 200) -> list[bool]:
    """Whether steps of late looked for candidates, of which these were found."""
    costs = Searching(StepCosts(LINEAR))
    costs.seconds = seconds
    of, seen = AutoTuner(Calibration(), costs), []
    for _ in range(steps):
        begin(of, [10] * batch)
        seen.append(of.floor(1.0) <= 1.0)
        bids = [bid(*probabilities) if seen[-1] else None for _ in range(batch)]
        if seen[-1]:
            of.price([b for b in bids if b is not None])
        observe(of, bids, [outcome(plain(), (50,))] * batch)
    return seen[-40:]


def test_few_steps_search_where_searching_adds_less_than_it_costs() -> None:
    assert all(searches(0.0)), "they cost nothing"
    assert all(searches(0.1, 0.5)), "half a token, less a fiftieth, for three twentieths"
    assert searches(0.4, 0.5).count(True) == 10
    assert searches(0.05).count(True) == 10, "nothing is found"
    assert searches(0.4, 0.5, batch=7).count(True) == 10


def test_a_rare_search_notices_that_searching_pays_again() -> None:
    costs = Searching(StepCosts(LINEAR))
    costs.seconds = 0.2
    of = AutoTuner(Calibration(), costs)
    seen: list[bool] = []
    for step in range(260):
        begin(of, [10])
        seen.append(of.floor(1.0) <= 1.0)
        made = bid(*([0.9] if step >= 200 else [])) if seen[-1] else None
        if made is not None:
            of.price([made])
        observe(of, [made], [outcome(plain(), (50,))])
    assert seen[160:200].count(True) == 10
    assert all(seen[230:])


def test_expected_tokens_are_one_and_the_drafted_path_probabilities() -> None:
    of = tuner(LINEAR, [10, 10, 10])
    bids = [bid(0.5, 0.3, 0.001), bid(0.9, 0.8, 0.7, limit=2), None]
    price = of.price([b for b in bids if b is not None])
    trees = [tree_at(b, price) if b else plain() for b in bids]
    found = observe(of, bids, [outcome(tree, (50,)) for tree in trees])
    assert [each and each.tokens for each in found] == [
        pytest.approx(1.8),
        pytest.approx(2.7),
        None,
    ]
    # Nothing pays: one token, of which nobody has doubts.
    of = tuner(STEEP)
    nothing = [bid(0.1)]
    of.price(nothing)
    (prediction,) = observe(of, nothing, [outcome(plain(), (5,))])
    assert prediction is not None
    assert prediction.tokens == 1.0


def test_predictions_are_from_before_the_step() -> None:
    of = tuner(STEEP)
    for number in (1, 2, 3):
        pool = Pool(99, of.calibration.at(0.0).acceptance, floor=0.0, most=9)
        pool.copy((3,), 4, "context", preferred=True)
        pool.offer(TABLE, "table", [ROOT], np.array([[5, 3]]), np.zeros((1, 2), np.float32))
        before = [pool.path[1], pool.path[2]]
        begin(of, [10])
        of.price([bid_of(pool, 9)])
        (prediction,) = observe(of, [bid_of(pool, 9)], [outcome(plain(), (5,))])
        assert prediction is not None
        assert prediction.step == 1 + number, "the tuner was at its first when it was made"
        assert prediction.candidates.sources == ["context", "table"]
        assert prediction.candidates.taken == [False, True]
        assert prediction.candidates.probabilities == before
        after = [of.calibration.at(0.0).acceptance.probability(codes) for codes in pool.codes[1:]]
        assert after[0] < before[0], "what was not taken is less likely now"
        assert after[1] > before[1]


def test_a_step_teaches_the_costs() -> None:
    seen: list[tuple[float, ...]] = []

    class Recording(LiveCosts):
        def observe(self, *step: float) -> None:
            seen.append(step)

        def searched(self, *step: float) -> None:
            seen.append(step)

    of = AutoTuner(
        Calibration(), Recording(StepCosts(FLAT, {"draft": Curve((1, 2), (0.25, 0.25))}))
    )
    begin(of, [7, 5])
    bids = [bid(0.9, levels=(1, 4)), bid(0.9)]
    of.price(bids)
    taken = [outcome(chain(3), (0, 1)), outcome(chain(1), (5,))]
    of.observe(StepReport(bids, taken, StepTimes(0.5, 1.25, 0.25, 0.375, 0.125)))
    # The smaller tree is padded; two draft forwards were a part of the growing.
    assert seen == [(8, 12, 2, 1.25, 0.75), (2, 0.5, 0.5)]
    begin(of, [7])
    of.price([bid(0.9)])
    of.observe(StepReport([bid(0.9)], [outcome(chain(1), (0, 1))], StepTimes(0.2, 1.0, 0.25)))
    assert seen[2:] == [(2, 7, 1, 1.0, 0.25), (1, 0.2, 0.0)]
    begin(of, [7])
    of.observe(StepReport([None], [outcome(plain(), (5,))], StepTimes(0.1, 1.0, 0.25)))
    assert seen[4:] == [(1, 7, 1, 1.0, 0.25)], "nobody has looked"


def test_the_gain_of_drafts_pays_for_their_forwards_and_not_for_searches() -> None:
    """A look finds what is worth 0.28 tokens, to which a cheap level or a dear one has helped."""
    for seconds, often in ((0.1, True), (0.5, False)):
        costs = Searching(StepCosts(LINEAR, {"draft": Curve((1, 2), (seconds, seconds))}))
        costs.seconds = 0.1
        of, seen = AutoTuner(Calibration(), costs), []
        for _ in range(300):
            seen.append(begin(of, [10])[0].floor <= 1.0)
            made = bid(0.3, levels=(1,)) if seen[-1] else None
            if made is not None:
                of.price([made])
            observe(of, [made], [outcome(plain(), (50,))])
        assert all(seen[-40:]) == often


def test_the_drafted_and_the_others_teach_the_calibration() -> None:
    of = tuner(STEEP)
    made = bid(0.1, 0.1)
    codes = codes_of(made, (0,))
    for _ in range(50):
        begin(of, [10])
        of.price([made])
        observe(of, [made], [outcome(plain(), (1,))])
    first, second = map(of.calibration.at(0.0).acceptance.probability, codes)
    assert second > 0.9
    assert first < 0.1
    assert of.calibration.at(1.0).acceptance.probability(codes[1]) < 0.5, (
        "another temperature has learnt nothing"
    )


def test_requests_teach_the_table_of_their_temperature_once_a_step() -> None:
    faded: list[str] = []

    class Fading(Counts):
        def __init__(self) -> None:
            super().__init__({}, 10.0)

        def fade(self) -> None:
            faded.append("once")

    class Tables(Calibration):
        tables: dict[float, Counts] = {}  # noqa: RUF012

        def at(self, temperature: float) -> Counts:
            return self.tables.setdefault(temperature, Fading())

    of = AutoTuner(Tables(), TrueCosts(StepCosts(LINEAR)))
    requests = loads([10, 10, 10], 0.0, 1.0, 1.0)
    of.begin(requests, queued=False)
    bids = [bid(0.5) for _ in range(3)]
    (codes,) = codes_of(bids[0], (0,))
    of.price(bids)
    observe(of, bids, [outcome(chain(1), (0, 5)), *[outcome(chain(1), (7,))] * 2])
    assert faded == ["once"] * 2
    cold, hot, _ = of.begin(requests, queued=False)
    assert cold.acceptance.probability(codes) > 0.25 > hot.acceptance.probability(codes)


def test_coverage_is_how_often_a_model_adds_an_accepted_token() -> None:
    def asked(hit: bool) -> tuple[Bid, Outcome]:
        pool = Pool(99, Sure(), floor=0.0, most=9)
        tokens = np.array([[3]])
        pool.offer(NEURAL, "draft", [ROOT], tokens, np.zeros((1, 1), dtype=np.float32))
        pool.path[1] = 0.5
        drafted = pool.tree([1], "auto")
        # It was right in either case, but is accepted only if it was drafted.
        return bid_of(pool, 9, levels=(1,)), outcome(drafted, (3, 8)) if hit else outcome(
            plain(), (3,)
        )

    for pattern, expected in (((True,), 1.0), ((False,), 0.0), ((True, False), 0.5)):
        of = tuner(LINEAR)
        start = of.coverage.value
        assert 0.0 < start < 1.0
        for hit in pattern * (600 // len(pattern)):
            begin(of, [10])
            made, taken = asked(hit)
            of.price([made])
            observe(of, [made], [taken])
        assert of.coverage.value == pytest.approx(expected, abs=0.03)
    # Whoever asks no model learns nothing of it.
    of = tuner(LINEAR)
    start = of.coverage.value
    of.price([bid(0.5)])
    observe(of, [bid(0.5)], [outcome(plain(), (0,))])
    assert of.coverage.value == start


# --- settings -------------------------------------------------------------------------------------

INFO = TargetInfo(13, 256, 1, 1, torch.device("cpu"), torch.float32)


def test_it_begins_with_the_calibration_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    save(path, {"greedy": {(0, 5, 0): (100.0, 99.0)}})
    built = Auto(calibration=str(path)).tuner(FakeHost(INFO), {})
    assert isinstance(built, AutoTuner)
    assert built.calibration.at(0.0).acceptance.probability((0, 5, 0)) > 0.8
    assert isinstance(Auto().tuner(FakeHost(INFO), {}), AutoTuner)
    with pytest.raises(DraftwoodError, match=r"cannot read .*json"):
        Auto(calibration=str(tmp_path / "missing.json")).tuner(FakeHost(INFO), {})
