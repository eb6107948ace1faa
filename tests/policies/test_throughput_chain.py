"""The width that follows the measured throughput, and the chains of this width."""

from collections.abc import Sequence

import pytest

from draftwood.costs.clock import Clock, StepSize
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import CostClock
from draftwood.engine.lockstep import draft
from draftwood.policies.throughput_chain.policy import ThroughputChain
from draftwood.policies.throughput_chain.tuner import ThroughputTuner
from draftwood.policies.throughput_chain.width import Width
from draftwood.protocols import (
    FREE,
    Continuation,
    Drafter,
    Growth,
    Outcome,
    RequestLoad,
    StepReport,
    StepTimes,
)
from draftwood.tree import TreeBuilder
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.scripted_sources import NO_ROWS, offer


def test_it_begins_with_the_smallest_width() -> None:
    assert Width(2, 16).now == 2


def test_a_larger_width_is_tried_after_two_rounds_of_high_acceptance() -> None:
    width = Width(2, 16)
    width.observe(3.0, 1.0, 1.0)
    assert width.now == 2
    width.observe(3.0, 1.0, 1.0)
    assert width.now == 3


def test_it_stays_if_it_yields_as_much_and_is_followed_by_the_next() -> None:
    width = Width(2, 16)
    for _ in range(2):
        width.observe(3.0, 1.0, 1.0)
    for _ in range(2):
        width.observe(4.0, 1.0, 1.0)
        assert width.now == 3
    width.observe(4.0, 1.0, 1.0)  # the pause after a trial
    assert width.now == 3
    width.observe(4.0, 1.0, 1.0)
    assert width.now == 4


def raised() -> Width:
    """Width 3 on trial; width 2 yields three tokens a second."""
    width = Width(2, 16)
    for _ in range(2):
        width.observe(3.0, 1.0, 1.0)
    return width


@pytest.mark.parametrize(
    ("tokens", "acceptance", "stays"),
    [
        (2.92, 1.0, True),
        (2.90, 1.0, False),  # 97 % of 3 tokens a second are 2.91
        (3.5, 0.7, False),
        (3.5, 0.75, True),
    ],
)
def test_what_a_larger_width_needs_to_stay(tokens: float, acceptance: float, stays: bool) -> None:
    width = raised()
    for _ in range(2):
        width.observe(tokens, 1.0, acceptance)
    assert width.now == (3 if stays else 2)


def test_a_severe_loss_ends_a_trial_at_once_and_six_rounds_pass_before_the_next() -> None:
    width = raised()
    width.observe(2.3, 1.0, 1.0)  # below 80 % of 3
    assert width.now == 2
    for _ in range(7):
        assert width.now == 2
        width.observe(3.0, 1.0, 1.0)
    assert width.now == 3


def test_a_smaller_width_is_tried_where_acceptance_is_low() -> None:
    width = Width(2, 16)
    width.now = 4
    for _ in range(2):
        width.observe(2.0, 1.0, 0.4)
    assert width.now == 3
    for _ in range(2):
        width.observe(2.0, 1.0, 0.4)  # of a smaller one no acceptance is asked
    assert width.now == 3
    for _ in range(2):
        width.observe(2.0, 1.0, 0.4)
    assert width.now == 2
    for _ in range(20):
        width.observe(1.0, 1.0, 0.0)
    assert width.now == 2


def test_it_does_not_exceed_its_bounds() -> None:
    width = Width(2, 4)
    for _ in range(50):
        width.observe(float(width.now + 1), 1.0, 1.0)
    assert width.now == 4


def test_averages_move_by_a_quarter() -> None:
    width = Width(2, 2)
    width.observe(2.0, 1.0, 0.0)
    width.observe(4.0, 2.0, 1.0)
    average = width._averages[2]
    assert (average.tokens, average.seconds, average.acceptance) == (2.5, 1.25, 0.25)
    width.observe(9.0, 0.0, 1.0)  # a step without time says nothing
    assert average.rounds == 2


def outcome(drafted: int, accepted: int) -> Outcome:
    tree = TreeBuilder(99)
    tree.add_chain(range(drafted), "context")
    committed = (*range(accepted), 50)
    return Outcome(tree.build(), tuple(range(1, accepted + 1)), committed, NO_ROWS)


class Told(Clock):
    """Says what steps took, and remembers their sizes."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)
        self.sizes: list[StepSize] = []

    def seconds(self, size: StepSize, measured: float) -> float:
        self.sizes.append(size)
        return self.left.pop(0)


def step(
    of: ThroughputTuner,
    *outcomes: Outcome,
    contexts: tuple[int, ...] = (10,),
    recorded: bool = False,
) -> int:
    """One step; returns the width that its requests were given."""
    [width, *others] = of.begin([RequestLoad(c, 9, 1.0, 0.0) for c in contexts])
    assert others == [width] * len(others)
    assert of.price([]) == FREE
    times = StepTimes(0.5, 1.0)
    found = of.observe(StepReport([None] * len(outcomes), outcomes, times, recorded))
    assert found == [None] * len(outcomes)
    return width


def test_only_whole_chains_teach_the_width() -> None:
    clock = Told(1.0, 1.0)
    own = ThroughputTuner(Width(2, 16), clock, cooldown=False)
    for done in (outcome(0, 0), outcome(1, 1), outcome(2, 2), outcome(1, 0), outcome(2, 2)):
        assert step(own, done) == 2
    assert step(own, outcome(2, 2), recorded=True) == 3
    assert step(own, outcome(0, 0)) == 3
    assert clock.sizes == [StepSize(3, 10, 1)] * 2


def test_where_the_source_copies_less_than_the_width_it_follows_the_source() -> None:
    width = Width(2, 32)
    own = ThroughputTuner(width, Clock(), cooldown=False)
    for _ in range(200):
        drafted = min(width.now, 8)
        step(own, outcome(drafted, drafted))
    assert width.now in (8, 9)
    for _ in range(200):
        step(own, outcome(min(width.now, 8), 0))
    assert width.now == 2


def test_a_batch_has_one_width_and_counts_as_one_round() -> None:
    clock = Told(2.0)
    width = Width(3, 3)
    own = ThroughputTuner(width, clock, cooldown=False)
    done = outcome(3, 3), outcome(3, 1), outcome(0, 0), outcome(1, 1)
    step(own, *done, contexts=(10, 20, 30, 40))
    assert clock.sizes == [StepSize(4 + 7, 100, 4)]
    average = width._averages[3]
    assert (average.tokens, average.seconds) == (3.0, 2.0)
    # Four tokens accepted of three and of two that were looked at.
    assert average.acceptance == pytest.approx(4 / 5)


def test_the_measured_time_counts_live_and_the_cost_in_a_replay() -> None:
    size = StepSize(5, 100, 2)
    assert Clock().seconds(size, 0.25) == 0.25
    costs = StepCosts(Curve((1, 9), (1.0, 9.0)), fixed=0.5, node=0.1)
    assert CostClock(costs).seconds(size, 0.25) == pytest.approx(5.0 + 0.5 + 0.3)


@pytest.mark.parametrize("cooldown", [True, False])
def test_a_step_is_plain_after_three_failures(*, cooldown: bool) -> None:
    own = ThroughputTuner(Width(2, 2), Told(*[1.0] * 9), cooldown=cooldown)
    widths = [step(own, outcome(2, 0)) for _ in range(3)]
    widths += [step(own, outcome(0, 0)), step(own, outcome(2, 0)), step(own, outcome(2, 1))]
    widths += [step(own, outcome(2, 0)) for _ in range(3)]
    assert widths == [2, 2, 2, 0 if cooldown else 2, 2, 2, 2, 2, 2]
    assert step(own, outcome(0, 0)) == (0 if cooldown else 2)


def test_a_failed_request_says_nothing() -> None:
    own = ThroughputTuner(Width(2, 16), Told(), cooldown=True)
    step(own, Outcome(outcome(2, 0).tree, (), (), NO_ROWS))
    assert own._failures == 0


class Copied(Drafter):
    """A drafter that copies thirty tokens."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [offer(*range(30)) for _ in slots]


@pytest.mark.parametrize(
    ("forecast", "room", "length"), [(5, 99, 5), (0, 99, 0), (9, 4, 4), (None, 99, 2), (30, 99, 16)]
)
def test_a_chain_has_the_width(forecast: int | None, room: int, length: int) -> None:
    growths = [Growth(0, room, 99, forecast=forecast)]
    [found] = draft(ThroughputChain(), {"context": Copied()}, [0], growths, [None])
    assert found.tree.drafted == length
    assert found.tree.route == ("chain" if length else "plain")


def test_the_floor_is_within_the_budget() -> None:
    for budget, floor, now in ((16, 2, 2), (1, 2, 1), (0, 2, 0)):
        own = ThroughputChain(budget=budget, floor=floor).tuner(FakeHost(MarkovTarget().info), {})
        assert own.begin([RequestLoad(1, 1, 1.0, 0.0)]) == [now]
