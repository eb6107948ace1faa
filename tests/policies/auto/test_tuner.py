"""The rate, costs, predictions and counts that a tuner learns from steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.costs.live import LiveCosts
from draftwood.errors import DraftwoodError
from draftwood.policies.auto.calibration import Calibration, Counts
from draftwood.policies.auto.calibration_file import save
from draftwood.policies.auto.features import TABLE
from draftwood.policies.auto.forecast import DraftForecast
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Forwards, Report
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import (
    FREE,
    MOST_READ,
    NOTHING_PAYS,
    Bid,
    LevelBid,
    Outcome,
    RequestLoad,
    StepReport,
    StepTimes,
)
from draftwood.tree import ROOT
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.policies.auto.codes import by_place
from tests.policies.auto.known_costs import (
    FLAT,
    LINEAR,
    ONE,
    STEEP,
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
    run,
    settle,
    tree_at,
    tuner,
)

DRAFT = Curve((1, 101), (0.1, 1.1))
WITH_DRAFT = StepCosts(FLAT, {"draft": DRAFT})
ONE_RIGHT = outcome(chain(1), (0, 1))
NOTHING_RIGHT = outcome(plain(), (50,))


@pytest.mark.parametrize("curve", [FLAT, Curve((1, 2), (1.0, 1.0), per_sequence=0.5)])
@pytest.mark.parametrize("gain", [1, 2])
@pytest.mark.parametrize("batch", [1, 4, 8])
def test_the_rate_is_relative_to_plain_decoding_of_any_batch(
    curve: Curve, gain: int, batch: int
) -> None:
    of = tuner(curve)
    settle(of, gain, batch)
    for requests in (1, 4, 8):
        begin(of, [10] * requests)
        assert of.rate == pytest.approx(gain * requests / curve.seconds(1, 0, requests), rel=1e-3)


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


@pytest.mark.parametrize(
    ("target", "nodes", "levels", "seconds"),
    [
        (LINEAR, 1, [()], 1.02),
        (LINEAR, 26, [()], 1.52),
        (LINEAR, 1, [(1, 4)], 1.02 + DRAFT.seconds(1) + DRAFT.seconds(4)),
        # Of two requests, one node and three together, then eight of one.
        (FLAT, 1, [(1, 8), (3,)], 1.0 + DRAFT.seconds(4) + DRAFT.seconds(8)),
    ],
)
def test_the_rate_pays_for_nodes_and_for_levels(
    target: Curve, nodes: int, levels: list[tuple[int, ...]], seconds: float
) -> None:
    of, contexts = tuner(StepCosts(target, {"draft": DRAFT})), [10] * len(levels)
    bids = [bid(0.9, levels=each) for each in levels]
    run(of, 200, bids, [outcome(chain(nodes), (0, 1))] * len(levels), contexts)
    begin(of, contexts)
    assert of.rate == pytest.approx(2 * len(levels) / seconds, rel=1e-3)


def test_the_rate_is_never_below_that_of_plain_decoding() -> None:
    # Steps of 11 nodes take 1.22 seconds, plain ones 1.0, and nothing is accepted.
    of, candidate = tuner(LINEAR), bid(0.9)
    run(of, 200, [candidate], [outcome(chain(11), (99,))])
    begin(of, [10])
    assert of.rate == pytest.approx(1.0 / LINEAR.seconds(1))
    # A node that is accepted as rarely as its cost in tokens of plain steps does not pay.
    node = LINEAR.seconds(2) - LINEAR.seconds(1)
    worse, better = bid(0.95 * node), bid(node + 0.02)
    assert not tree_at(worse, of.price([worse])).drafted
    assert tree_at(better, of.price([better])).drafted


def test_what_a_request_commits_in_the_time_of_a_step() -> None:
    of = tuner(LINEAR)
    # Two tokens in a step of one node, 1.02 seconds.
    run(of, 300, [bid(0.9)], [ONE_RIGHT])
    (forecast,) = begin(of, [10])
    found = [forecast.tokens(nodes) for nodes in (1, 0, 51)]
    assert found == pytest.approx([2.0, 2.0 / 1.02, 2.0 * 2.02 / 1.02], rel=1e-3)
    # Of two requests, one drafts 8 nodes in every step, and commits three times as many tokens.
    of = tuner(LINEAR, [10, 10])
    step = [outcome(chain(8), (0, 1, 2)), NOTHING_RIGHT]
    run(of, 300, [bid(0.9), bid(0.9)], step, [10, 10])
    fast, slow = of.begin([RequestLoad(10, 100, 3.0, 0.0), RequestLoad(10, 100, 1.0, 0.0)])
    # A step of eight nodes, of which four are the other one's, takes 1.18 seconds for four tokens.
    assert fast.tokens(4) == pytest.approx(3.0, rel=1e-3)
    assert slow.tokens(4) == pytest.approx(1.0, rel=1e-3)
    weights = fast.token_weight, slow.token_weight
    assert weights == pytest.approx((2.0 / 3.0, 2.0))
    # Fifty further nodes take a second, in which four tokens are generated.
    assert fast.tokens(54) == pytest.approx(3.0 + 4.0 / 1.18 / weights[0], rel=1e-2)
    assert slow.tokens(54) == pytest.approx(1.0 + 4.0 / 1.18 / weights[1], rel=1e-2)
    assert slow.tokens(0) == 1.0, "as in plain decoding"


def test_a_level_costs_the_tokens_made_meanwhile() -> None:
    of = tuner(WITH_DRAFT, [10, 10])
    settle(of, gain=1, batch=2)
    begin(of, [10, 10])
    # Their rate is two tokens a second, and the forward over 16 nodes is for both.
    cost = 2 * DRAFT.seconds(16)
    for share, width in ((0.51, 8), (0.49, 0)):
        asked = LevelBid("draft", [share * cost / 8] * 8)
        assert of.levels({"draft": [asked, asked]}) == ("draft", [width, width])
    free = tuner(FLAT)
    begin(free, [10])
    asked = LevelBid("draft", [0.1, 0.0])
    assert free.levels({"draft": [asked]}) == ("draft", [1]), "no drafter has a model"


@pytest.mark.parametrize(
    ("backlog", "left", "pace", "steps"),
    [(50, 1, 1.0, 1), (50, 20, 1.0, 20), (50, 100, 1.0, 50), (48, 100, 4.0, 12), (0, 1, 1.0, 1)],
)
def test_reading_a_backlog_is_spread_over_steps(
    backlog: int, left: int, pace: float, steps: int
) -> None:
    request = [RequestLoad(10, left, pace, 0.0, {"draft": backlog})]
    reading = DRAFT.seconds(1 + backlog) - DRAFT.seconds(1)
    for costs, seconds in ((WITH_DRAFT, reading), (StepCosts(FLAT), 0.0)):
        of = tuner(costs)
        settle(of, gain=1)
        # A token a second is generated meanwhile, and it is asked in a fifth of the steps.
        found = of.begin(request)[0].of("draft").catch_up
        assert found == pytest.approx(seconds / max(1.0, 0.2 * steps), rel=1e-3)


@pytest.mark.parametrize(("every", "share"), [(1, 1.0), (2, 0.5), (1000, 0.0)])
def test_a_backlog_is_paid_back_by_the_steps_that_ask_again(every: int, share: float) -> None:
    of, request = tuner(WITH_DRAFT), RequestLoad(100, 1000, 1.0, 0.0, {"draft": 60})
    settle(of, gain=1)

    def step(number: int, load: RequestLoad) -> None:
        of.begin([load])
        levels = {"draft": [1]} if number % every == 0 else {}
        observe(of, [replace(bid(0.5), levels=levels)], [NOTHING_RIGHT])

    def steps() -> float:
        """Those over which reading sixty tokens is spread."""
        reading = of.rate * (DRAFT.seconds(61) - DRAFT.seconds(1))
        return reading / of.begin([request])[0].of("draft").catch_up

    assert steps() == pytest.approx(0.2 * 60)
    for number in range(2000):
        step(number, RequestLoad(100, 1000, 1.0, 0.0, {"draft": 3}))
    assert steps() == pytest.approx(max(1.0, share * 60), rel=0.05)
    # Requests whose text it has not read say nothing, and it is tried again some day.
    for number in range(6000):
        # A head does not read the first token, a draft model does.
        step(number, RequestLoad(100, 1000, 1.0, 0.0, {"draft": 99 - number % 2}))
    assert steps() == pytest.approx(0.2 * 60, rel=0.05)


def test_the_floor_follows_the_price_and_has_bounds() -> None:
    found, candidates = [], bid(*(0.9**i for i in range(1, 80)))
    for curve in (FLAT, LINEAR, Curve((1, 21), (1.0, 3.0))):
        of, floors = tuner(curve), []
        for _ in range(80):
            floors.append(begin(of, [10])[0].floor)
            price = of.price([candidates])
        assert all(0.0 < floor < 0.5 for floor in floors)
        assert max(floors[-16:]) == pytest.approx(min(floors[-16:]), rel=0.02), "it settles"
        # A candidate may come to pay: the floor lies below the price.
        assert curve is FLAT or floors[-1] < min(admitted([candidates], price))
        found.append(floors[-1])
    assert found == sorted(set(found)), "the dearer the nodes, the higher"


class Searching(FixedCosts):
    """A search for candidates takes so many seconds a request."""

    seconds = 0.0

    def search(self, batch: int) -> float:
        return self.seconds * batch


def searching(seconds: float, level: float | None = None) -> AutoTuner:
    draft = {} if level is None else {"draft": Curve((1, 2), (level, level))}
    costs = Searching(StepCosts(LINEAR, draft))
    costs.seconds = seconds
    return AutoTuner(Calibration(), costs, ONE)


def all_wrong(of: Bid) -> Outcome:
    """All candidates were drafted, and none of them is right."""
    return outcome(tree_at(of, FREE), (99,))


@pytest.mark.parametrize(
    ("seconds", "level", "batch", "found", "steps"),
    [
        (0.0, None, 2, (), 40),
        (0.1, None, 2, (0.5,), 40),  # half a token, less a fiftieth, for three twentieths
        (0.4, None, 2, (0.5,), 10),
        (0.4, None, 7, (0.5,), 10),
        (0.05, None, 2, (), 10),
        (0.47, None, 1, (0.48,), 10),  # without the fiftieth it would pay
        # 0.28 tokens, to which a cheap level or a dear one has helped.
        (0.1, 0.1, 1, (0.3,), 40),
        (0.1, 0.5, 1, (0.3,), 10),
    ],
)
def test_few_steps_search_where_searching_adds_less_than_it_costs(
    seconds: float, level: float | None, batch: int, found: tuple[float, ...], steps: int
) -> None:
    bids = [bid(*found, levels=() if level is None else (1,))] * batch
    searched = run(searching(seconds, level), 300, bids, [*map(all_wrong, bids)], [10] * batch)
    assert searched[-40:].count(True) == steps


def test_a_rare_search_notices_that_searching_pays_again() -> None:
    of = searching(0.2)
    assert run(of, 200, [bid()], [NOTHING_RIGHT])[-40:].count(True) == 10
    assert all(run(of, 60, [bid(0.9)], [NOTHING_RIGHT])[30:])


def test_the_discount_on_copies_does_not_make_searches_seldom() -> None:
    """It decides how many are drafted now. What is drafted adds its whole probability."""
    given = bid(0.9, 0.9)
    given.report.candidates.copied.update((1, 2))
    whole: Report = given.report
    copied = replace(given, report=replace(whole, discount=0.25), values=[0.225, 0.225])
    assert run(searching(0.5), 300, [copied], [all_wrong(copied)])[-40:].count(True) == 40
    rare = bid(0.225, 0.225)
    assert run(searching(0.5), 300, [rare], [all_wrong(rare)])[-40:].count(True) == 10


class PlainDue(FixedCosts):
    """A step without drafts is due in a batch of two."""

    def plain_due(self, batch: int) -> bool:
        return batch == 2


def test_a_step_drafts_nothing_if_a_plain_one_is_to_be_timed() -> None:
    of = AutoTuner(Calibration(), PlainDue(StepCosts(LINEAR)), ONE)
    assert [forecast.floor for forecast in begin(of, [10, 10])] == [NOTHING_PAYS.least] * 2
    observe(of, [None, None], [outcome(plain(), [0])] * 2)
    assert begin(of, [10])[0].floor <= 1.0


class Behind(LiveCosts):
    """Drafting is slower than plain decoding, and what is compared is kept."""

    def __init__(self) -> None:
        super().__init__(StepCosts(LINEAR))
        self.compared: list[tuple[int, bool, int, float]] = []

    def drafts(self, batch: int) -> bool:
        return len(self.compared) < 2

    def compare(self, batch: int, searched: bool, tokens: int, seconds: float) -> None:
        self.compared.append((batch, searched, tokens, seconds))


def test_a_step_drafts_nothing_while_drafting_is_behind() -> None:
    costs = Behind()
    of = AutoTuner(Calibration(), costs, ONE)
    for step in range(4):
        found = bid(0.9) if begin(of, [10])[0].floor <= 1.0 else None
        assert (found is None) == (step >= 2)
        observe(of, [found], [outcome(plain(), [0])])
    assert [row[:3] for row in costs.compared] == [(1, step < 2, 1) for step in range(4)]


def test_expected_tokens_are_one_and_the_drafted_path_probabilities() -> None:
    of = tuner(LINEAR, [10, 10, 10])
    bids = [bid(0.5, 0.3, 0.001), bid(0.9, 0.8, 0.7, limit=2), None]
    price = of.price([b for b in bids if b is not None])
    trees = [tree_at(b, price) if b else plain() for b in bids]
    found = observe(of, bids, [outcome(tree, (50,)) for tree in trees])
    expected = [pytest.approx(1.8), pytest.approx(2.7), None]
    assert [each and each.tokens for each in found] == expected
    # Nothing pays: one token for certain.
    of = tuner(STEEP)
    of.price([bid(0.1)])
    (prediction,) = observe(of, [bid(0.1)], [NOTHING_RIGHT])
    assert prediction is not None
    assert prediction.tokens == 1.0


def test_predictions_are_from_before_the_step() -> None:
    of = tuner(STEEP)
    for number in (1, 2, 3):
        counts = of.calibration.at(0.0)
        pool = Pool(99, counts.acceptance, floor=0.0, most=9)
        pool.copy((3,), by_place(4), "context")
        pool.offer(TABLE, "table", [ROOT], np.array([[5, 3]]), np.zeros((1, 2), np.float32))
        before = pool.path[1:]
        begin(of, [10])
        of.price([bid_of(pool, 9)])
        (prediction,) = observe(of, [bid_of(pool, 9)], [outcome(plain(), (5,))])
        assert prediction is not None
        assert prediction.step == 1 + number, "the tuner was at its first when it was made"
        assert prediction.candidates.sources == ["context", "table"]
        assert prediction.candidates.taken == [False, True]
        assert prediction.candidates.probabilities == before
        rejected, accepted = (counts.acceptance.probability(codes) for codes in pool.codes[1:])
        assert rejected < before[0]
        assert accepted > before[1]


def test_a_step_teaches_the_costs() -> None:
    seen: list[tuple[object, ...]] = []
    compared: list[tuple[object, ...]] = []

    class Recording(LiveCosts):
        def observe(self, *step: float) -> None:
            seen.append(step)

        def searched(self, *step: object) -> None:
            seen.append(step)

        def compare(self, *step: object) -> None:
            compared.append(step)

    of = AutoTuner(Calibration(), Recording(WITH_DRAFT), ONE)

    def step(
        contexts: list[int],
        bids: list[Bid | None],
        taken: list[Outcome],
        *,
        recorded: bool = False,
        backlog: int = 5,
    ) -> None:
        requests = [RequestLoad(each, 100, 1.0, 0.0, {"draft": backlog}) for each in contexts]
        of.begin(requests)
        if any(bids):
            of.price([each for each in bids if each is not None])
        times = StepTimes(0.5, 1.25, 0.25, 0.375, 0.125)
        of.observe(StepReport(bids, taken, times, recorded, 0.125))

    # Three nodes and two roots; reading a backlog is a part of the draft levels.
    step([7, 5], [bid(0.9, levels=(1, 4)), bid(0.9)], [outcome(chain(3), (0, 1)), NOTHING_RIGHT])
    reading = DRAFT.seconds(6) - DRAFT.seconds(1)
    drafting = DRAFT.seconds(1) + DRAFT.seconds(4) + reading
    levels = pytest.approx({"draft": drafting})
    assert seen == [(5, 12, 2, 1.25, 0.75, 0), (2, 0.125, 0.375, levels)]
    # Four further steps of the request gain from that reading as well, and are charged for it.
    later = reading * min(1.0, 0.375 / drafting) * 4 / 5
    plain = Recording(WITH_DRAFT).now(2).step(2, 12, 2)
    assert compared == [(2, True, 3, pytest.approx((2.5 - later) / plain))]
    step([7], [bid(0.9)], [ONE_RIGHT])
    assert seen[2:] == [(2, 7, 1, 1.25, 0.75, 0), (1, 0.5, 0.0, {})], "no level was asked"
    plain = Recording(WITH_DRAFT).now(1).step(1, 7, 1)
    assert compared[1:] == [(1, True, 2, pytest.approx((2.5 + later / 5) / plain))]
    step([7], [None], [NOTHING_RIGHT])
    assert seen[4:] == [(1, 7, 1, 1.25, 0.75, 0)], "no request has searched"
    assert len(compared) == 3
    # A step in which a forward was recorded took longer than any other will.
    step([7], [bid(0.9)], [ONE_RIGHT], recorded=True)
    assert (len(seen), len(compared)) == (5, 3)
    step([7], [bid(0.9)], [ONE_RIGHT])
    assert (len(seen), len(compared)) == (7, 4)
    step([7], [bid(0.9, levels=(1,))], [ONE_RIGHT], backlog=50)
    little = "a step that mostly reads says little of levels"
    assert seen[-1] == (1, 0.125, 0.375, {"draft": 0.0}), little


def test_prompts_within_a_step_are_no_time_of_the_method() -> None:
    seen: list[tuple[object, ...]] = []
    compared: list[tuple[object, ...]] = []

    class Recording(LiveCosts):
        def observe(self, *step: float) -> None:
            seen.append(step)

        def compare(self, *step: object) -> None:
            compared.append(step)

    of = AutoTuner(Calibration(), Recording(StepCosts(STEEP)))
    target = STEEP
    for read in (0, 40):
        of.reads_within(read)
        begin(of, [7])
        price = of.price([bid(0.9)])
        further = target.seconds(2 + read) - target.seconds(1 + read)
        assert of.recent_price > 0.0
        assert (price.least == 0.9) == (of.rate * further < 0.9)
        times = StepTimes(0.5, 1.25 + target.seconds(2 + read) - target.seconds(2), 0.25)
        report = StepReport([bid(0.9)], [ONE_RIGHT], times, prompt_tokens=read)
        assert report.typical == (not read)
        of.observe(report)
    assert [step[0] for step in seen] == [2, 2]
    assert [step[-1] for step in seen] == [0, 40]
    assert compared[0][-1] == pytest.approx(compared[1][-1]), "the prompt took the rest"


@pytest.mark.parametrize(("requests", "backlog"), [(1, 5000), (2, MOST_READ), (2, 5000)])
def test_beside_others_a_model_reads_a_prompt_in_pieces(requests: int, backlog: int) -> None:
    seen: list[Any] = []

    class Recording(LiveCosts):
        def compare(self, *step: Any) -> None:
            seen.append(step[-1])

    of = AutoTuner(Calibration(), Recording(WITH_DRAFT), ONE)
    first = begin(of, [10])[0].of("draft").gain
    loads = [RequestLoad(10, 100, 1.0, 0.0, {"draft": backlog})] * requests
    of.begin(loads)
    bids, taken = [asking(0.8), *[None] * (requests - 1)], [NOTHING_RIGHT] * requests
    of.observe(StepReport(bids, taken, StepTimes(0.5, 1.25, 0.25, 0.375, 0.125), search=0.0))
    read = backlog if requests == 1 else MOST_READ
    reading = DRAFT.seconds(1 + read) - DRAFT.seconds(1)
    # Of the reading one part in a hundred is this step's.
    later = 0.99 * reading * min(1.0, 0.5 / DRAFT.seconds(1 + read))
    plain = Recording(WITH_DRAFT).now(requests).step(requests, 10 * requests, requests)
    assert seen == [pytest.approx((2.5 - later) / plain)]
    gain = of.begin(loads)[0].of("draft").gain
    # Of a model that has yet to read most of the prompt, nothing was learnt.
    assert (gain < first) == (read == backlog)


def test_candidates_are_counted_whether_they_were_drafted_or_not() -> None:
    of = tuner(STEEP)
    made = bid(0.1, 0.1)
    run(of, 50, [made], [outcome(plain(), (1,))])
    first, second = codes_of(made, (0,))
    cold, hot = of.calibration.at(0.0).acceptance, of.calibration.at(1.0).acceptance
    assert cold.probability(second) > 0.9
    assert cold.probability(first) < 0.1
    assert hot.probability(second) < 0.5, "another temperature has learnt nothing"


def test_requests_teach_the_table_of_their_temperature_once_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faded: list[Counts] = []

    def fade(counts: Counts) -> None:
        faded.append(counts)

    monkeypatch.setattr(Counts, "fade", fade)
    of = tuner(LINEAR)
    requests = loads([10, 10, 10], 0.0, 1.0, 1.0)
    of.begin(requests)
    bids = [bid(0.5) for _ in range(3)]
    (codes,) = codes_of(bids[0], (0,))
    of.price(bids)
    observe(of, bids, [outcome(chain(1), (0, 5)), *[outcome(chain(1), (7,))] * 2])
    assert faded == [of.calibration.at(0.0), of.calibration.at(1.0)]
    cold, hot, _ = of.begin(requests)
    assert cold.acceptance.probability(codes) > 0.25 > hot.acceptance.probability(codes)


def asking(headroom: float, price: float = 0.2) -> Bid:
    """A bid of one candidate, token 0, which a draft forward has added."""
    made = bid(0.5, levels=(1,))
    forwards = [Forwards("draft", headroom, (), price)]
    return replace(made, report=replace(made.report, forwards=forwards))


@pytest.mark.parametrize(
    ("headroom", "committed", "gain"),
    [(0.8, (0, 5), 1.0), (1.6, (0, 5), 0.5), (0.8, (5,), -0.25), (0.4, (5,), -0.5)],
)
def test_a_drafter_gains_a_share_of_the_headroom(
    headroom: float, committed: tuple[int, ...], gain: float
) -> None:
    of = tuner(WITH_DRAFT)
    run(of, 3000, [asking(headroom)], [outcome(chain(1), committed)])
    assert begin(of, [10])[0].of("draft").gain == pytest.approx(gain, abs=0.01)


def test_what_was_predicted_of_a_drafter_does_not_count() -> None:
    # Candidates that are thought likely, and are never taken.
    of = tuner(WITH_DRAFT)
    first = begin(of, [10])[0].of("draft").gain
    run(of, 300, [asking(0.8)], [outcome(chain(1), (5,))])
    assert begin(of, [10])[0].of("draft").gain < 0.0 < first


def test_a_drafter_that_did_not_pay_is_asked_again_some_day() -> None:
    of = tuner(WITH_DRAFT)
    start = begin(of, [10])[0].of("draft").gain
    idle = [bid(0.5)], [outcome(plain(), (0,))]
    run(of, 9, *idle)
    assert begin(of, [10])[0].of("draft").gain == pytest.approx(start), "nothing is known yet"
    run(of, 300, [asking(0.9)], [outcome(chain(1), (5,))])
    assert begin(of, [10])[0].of("draft").gain < 0.2 * start
    run(of, 20, *idle)
    assert begin(of, [10])[0].of("draft").gain < 0.2 * start
    run(of, 1500, *idle)
    assert begin(of, [10])[0].of("draft").gain > 0.8 * start


def test_a_drafter_is_asked_again_whoever_asks_it_at_another_temperature() -> None:
    of = tuner(WITH_DRAFT)
    requests = loads([10, 10], 1.0, 0.0)
    start = of.begin(requests)[0].of("draft").gain

    def run_both(steps: int, hot: Bid, cold: Bid, taken: Outcome) -> float:
        for _ in range(steps):
            of.begin(requests)
            of.price([hot, cold])
            observe(of, [hot, cold], [taken, outcome(chain(1), (0, 5))])
        return of.begin(requests)[0].of("draft").gain

    assert run_both(300, asking(0.9), asking(0.9), outcome(chain(1), (5,))) < 0.2 * start
    assert run_both(1500, bid(0.5), asking(0.9), outcome(plain(), (0,))) > 0.8 * start


def test_steps_without_a_bid_fade_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    faded: list[Counts] = []

    def fade(counts: Counts) -> None:
        faded.append(counts)

    monkeypatch.setattr(Counts, "fade", fade)
    of = tuner(LINEAR)
    of.begin(loads([10, 10], 0.0, 1.0))
    of.price([bid(0.5)])
    observe(of, [None, bid(0.5)], [outcome(plain(), (0,)), outcome(chain(1), (7,))])
    assert faded == [of.calibration.at(1.0)]


def test_it_begins_with_the_calibration_that_is_given(tmp_path: Path) -> None:
    path, host = tmp_path / "mine.json", FakeHost(MarkovTarget().info)
    save(path, Calibration({"greedy": {(0, 5, 0): (100.0, 99.0)}}))
    built = Auto(calibration=str(path)).tuner(host, {})
    assert isinstance(built, AutoTuner)
    assert built.calibration.at(0.0).acceptance.probability((0, 5, 0)) > 0.8
    assert isinstance(Auto().tuner(host, {}), AutoTuner)
    with pytest.raises(DraftwoodError, match=r"cannot read .*json"):
        Auto(calibration=str(tmp_path / "missing.json")).tuner(host, {})


SECOND = Curve((1, 101), (0.3, 0.3))
TWO = {"draft": DraftForecast(), "second": DraftForecast(at_once=True, deepest=4)}


def two() -> AutoTuner:
    """Two neural drafters, at the beginning of a step of one request."""
    costs = FixedCosts(StepCosts(FLAT, {"draft": DRAFT, "second": SECOND}))
    of = AutoTuner(Calibration(), costs, TWO)
    settle(of, gain=1)
    begin(of, [10])
    return of


def asking_two(first: float, second: float) -> Bid:
    """Token 0 was added by a forward of the first drafter, token 1 by one of the second."""
    made = bid(0.5, 0.4, levels=(1,))
    forwards = [Forwards("draft", first, (), 0.2), Forwards("second", second, (1,), 0.2)]
    report = replace(made.report, forwards=forwards)
    return replace(made, report=report, levels={"draft": (1,), "second": (2,)})


@pytest.mark.parametrize(("gain", "found"), [(0.35, ("draft", [1])), (0.45, ("second", [1]))])
def test_levels_are_of_the_drafter_that_gains_most(
    gain: float, found: tuple[str, list[int]]
) -> None:
    # Levels cost 0.1 and 0.3 tokens.
    bids = {"draft": [LevelBid("draft", [0.2])], "second": [LevelBid("second", [gain])]}
    assert two().levels(bids) == found


def test_each_drafter_reads_its_own_backlog() -> None:
    request = RequestLoad(10, 1, 1.0, 0.0, {"draft": 50, "second": 0})
    (forecast,) = two().begin([request])
    reading = DRAFT.seconds(51) - DRAFT.seconds(1)
    assert forecast.of("draft").catch_up == pytest.approx(reading, rel=1e-3)
    assert forecast.of("second").catch_up == 0.0
    assert [forecast.of(name).at_once for name in TWO] == [False, True]
    assert [forecast.of(name).deepest for name in TWO] == [None, 4]


def test_each_drafter_gains_what_its_own_forwards_added() -> None:
    of = two()
    # Token 0 is right: the first drafter has added it, and the second one a node in vain.
    for _ in range(3000):
        begin(of, [10])
        of.price([asking_two(0.8, 0.4)])
        observe(of, [asking_two(0.8, 0.4)], [outcome(chain(1), (0, 5))])
    (forecast,) = begin(of, [10])
    assert forecast.of("draft").gain == pytest.approx((1 - 0.2) / 0.8, abs=0.01)
    assert forecast.of("second").gain == pytest.approx(-0.2 / 0.4, abs=0.01)


def test_a_drafter_that_is_not_asked_is_forgotten_alone() -> None:
    of = two()
    start = begin(of, [10])[0].of("second").gain
    vain = asking_two(0.8, 0.4)
    for _ in range(300):
        begin(of, [10])
        observe(of, [vain], [outcome(chain(1), (5,))])
    first, second = (begin(of, [10])[0].of(name).gain for name in TWO)
    report = replace(vain.report, forwards=vain.report.forwards[:1])
    alone = replace(vain, report=report, levels={"draft": (1,)})
    for _ in range(1500):
        begin(of, [10])
        observe(of, [alone], [outcome(chain(1), (5,))])
    assert begin(of, [10])[0].of("draft").gain < first + 0.05
    assert second < 0.2 * start < 0.8 * start < begin(of, [10])[0].of("second").gain


def test_the_rate_pays_for_the_levels_of_both() -> None:
    of = two()
    for _ in range(200):
        begin(of, [10])
        observe(of, [asking_two(0.8, 0.4)], [outcome(chain(1), (0, 5))])
    begin(of, [10])
    seconds = 1.0 + DRAFT.seconds(1) + SECOND.seconds(2)
    assert of.rate == pytest.approx(2 / seconds, rel=1e-3)
