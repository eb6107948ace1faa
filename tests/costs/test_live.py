"""Costs that follow the steps, for batches of each size by themselves."""

import math
import random
from dataclasses import replace

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.refine import Refined

GIVEN = StepCosts(
    Curve((1, 8, 64), (1.0, 1.2, 2.0), per_context=1e-4),
    {"draft": Curve((1, 8), (0.1, 0.2))},
    fixed=0.2,
    node=0.001,
)


def test_without_observations_costs_are_as_given() -> None:
    live = LiveCosts(GIVEN)
    for batch in (1, 3, 16):
        found = live.now(batch)
        for tokens in (1, 5, 8, 40, 64, 100, 1000, 5000):
            expected = GIVEN.target.seconds(tokens, 30, batch)
            assert found.target.seconds(tokens, 30, batch) == pytest.approx(expected)
        assert (found.fixed, found.node) == (GIVEN.fixed, GIVEN.node)


def taught(true: StepCosts, batch: int, steps: int = 400) -> LiveCosts:
    """Steps of trees of up to 24 nodes, with a tenth of noise."""
    rng = random.Random(3)
    live = LiveCosts(GIVEN)
    for _ in range(steps):
        nodes = rng.choice([0, 1, 3, 7, 15, 24])
        tokens = batch * (1 + nodes)
        noise = rng.uniform(0.9, 1.1)
        outside = true.fixed + true.node * batch * nodes
        target = noise * true.target.seconds(tokens, 100, batch)
        live.observe(tokens, 100, batch, target, noise * outside)
    return live


TRUE = StepCosts(
    Curve((1, 16, 64, 128, 400), (1.5, 2.0, 2.2, 5.0, 9.0), per_context=1e-4), fixed=0.6, node=0.002
)


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_the_forwards_cost_converges_at_every_observed_size(batch: int) -> None:
    found = taught(TRUE, batch).now(batch)
    for nodes in (0, 3, 7, 15):
        tokens = batch * (1 + nodes)
        expected = TRUE.target.seconds(tokens, 100, batch)
        assert found.target.seconds(tokens, 100, batch) == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("batch", [1, 16])
def test_host_time_converges(batch: int) -> None:
    found = taught(TRUE, batch).now(batch)
    assert found.fixed == pytest.approx(TRUE.fixed, rel=0.2)
    assert found.node == pytest.approx(TRUE.node, rel=0.5)


def test_the_first_steps_show_that_a_batch_is_slower() -> None:
    live = LiveCosts(GIVEN)
    for _ in range(6):
        live.observe(16, 100, 16, 6.0, 0.2)
    known = LiveCosts(GIVEN).now(16).target.seconds(16, 100, 16)
    assert live.now(16).target.seconds(16, 100, 16) > 1.5 * known


def test_batches_of_other_sizes_do_not_change() -> None:
    live = taught(TRUE, 16)
    assert live.now(1) == LiveCosts(GIVEN).now(1)
    assert live.now(4) == LiveCosts(GIVEN).now(4)
    # As many sequences as make no difference.
    assert live.now(13) is live.now(16) is live.now(20)
    assert live.now(16) != LiveCosts(GIVEN).now(16)


def test_levels_move_with_the_machine_as_a_whole() -> None:
    slow = StepCosts(Curve((1, 8, 64), (3.0, 3.6, 6.0), per_context=3e-4), fixed=0.2, node=0.001)
    found = taught(slow, 1).now(1)
    assert found.drafters["draft"].seconds(8) == pytest.approx(0.6, rel=0.1)
    assert found.drafters["draft"].seconds(1) == pytest.approx(0.3, rel=0.1)


def test_a_pause_moves_nothing_far() -> None:
    live = taught(GIVEN, 1)
    before = live.now(1)
    for _ in range(8):
        live.observe(1, 100, 1, 1000.0, 1000.0)
    after = live.now(1)
    assert after.target.seconds(1) < 1.5 * before.target.seconds(1)
    assert after.fixed < 2.0 * before.fixed


def test_a_search_takes_the_moving_average_of_searches() -> None:
    live = LiveCosts(GIVEN)
    assert live.search(1) == 0.0
    live.searched(1, 0.3, 0.0, {})
    assert live.search(1) == pytest.approx(0.3)
    assert live.search(16) == 0.0
    live.searched(1, 1000.0, 0.0, {})
    assert live.search(1) < 0.5, "a pause counts as a slow one"
    for _ in range(30):
        live.searched(1, 0.1, 0.0, {})
        live.searched(1, 0.1, 0.7, {"draft": 0.4})
    assert live.search(1) == pytest.approx(0.1, rel=0.05)


def test_the_second_search_replaces_a_slower_first_one() -> None:
    live = LiveCosts(GIVEN)
    for seconds, found in ((0.9, 0.9), (0.3, 0.3), (0.4, 0.31)):
        live.searched(1, seconds, 0.0, {})
        assert live.search(1) == pytest.approx(found)


@pytest.mark.parametrize(("took", "factor"), [(0.8, 2.0), (0.4, 1.0), (0.05, 0.125), (0.0, 0.0)])
def test_levels_cost_the_time_after_a_search(took: float, factor: float) -> None:
    live = LiveCosts(GIVEN)
    level = GIVEN.drafters["draft"].seconds(1)
    for _ in range(400):
        now = live.now(1).drafters["draft"].seconds(1)
        live.searched(1, 0.2, took, {"draft": now * 0.4 / level})
        live.observe(1, 100, 1, GIVEN.target.seconds(1, 100, 1), 0.2)
    # Two levels were expected to take 0.4.
    assert live.search(1) == pytest.approx(0.2)
    found = live.now(1).drafters["draft"].seconds(1)
    assert found == pytest.approx(factor * level, rel=0.05, abs=1e-6)


def test_dear_levels_are_known_after_few_steps() -> None:
    """Those of a batch may take several times what was measured of one sequence."""
    live = LiveCosts(GIVEN)
    level = GIVEN.drafters["draft"].seconds(1)
    for _ in range(4):
        now = live.now(16).drafters["draft"].seconds(1)
        live.searched(16, 0.2, 4.0 * level, {"draft": now})
        live.observe(16, 100, 16, GIVEN.target.seconds(16, 100, 16), 0.2)
    assert live.search(16) == pytest.approx(0.2)
    assert live.now(16).drafters["draft"].seconds(1) == pytest.approx(3.0 * level, rel=0.15)


def test_levels_that_begin_late_are_not_thought_dearer_than_they_are() -> None:
    live = LiveCosts(GIVEN)
    level = GIVEN.drafters["draft"].seconds(1)
    step = 16, 100, 16, GIVEN.target.seconds(16, 100, 16), 0.2
    for _ in range(8):
        live.observe(*step)
    for _ in range(8):
        live.observe(*step)
        now = live.now(16).drafters["draft"].seconds(1)
        live.searched(16, 0.2, 4.0 * level, {"draft": now})
    assert 3.0 * level < live.now(16).drafters["draft"].seconds(1) < 4.4 * level


def test_a_pause_among_levels_moves_little() -> None:
    live = LiveCosts(GIVEN)
    before = live.now(1).drafters["draft"].seconds(1)
    for _ in range(10):
        live.searched(1, 0.1, 0.4, {"draft": 0.4})
    live.searched(1, 0.1, 1000.0, {"draft": 0.4})
    live.observe(1, 100, 1, GIVEN.target.seconds(1, 100, 1), 0.2)
    assert before < live.now(1).drafters["draft"].seconds(1) < 1.2 * before


def test_deferred_observations_equal_immediate_ones() -> None:
    live = LiveCosts(GIVEN)
    refined = Refined(live.now(1).target)
    rng = random.Random(1)
    known = [live.now(1)]
    for _ in range(32):
        tokens, seconds = rng.choice([1, 4, 9, 64]), rng.uniform(0.5, 3.0)
        live.observe(tokens, 100, 1, seconds, 0.2)
        refined = refined.observe(tokens, 100, 1, seconds)
        if live.now(1) is not known[-1]:
            known.append(live.now(1))
            assert known[-1].target == refined.curve, "of all steps so far"
    # After each of the first eight steps, and then after every eighth.
    assert len(known) == 1 + 8 + 3


def test_seconds_outside_of_forwards_by_hand() -> None:
    live = LiveCosts(GIVEN)
    live.observe(4, 100, 1, 1.0, 0.3)
    kept = 2.0 ** (-1 / 64)
    # Sixteen steps of 16 nodes on average with a deviation of 16, as was given, and one of 3.
    weight, n, square = 16 * kept + 1, 256 * kept + 3, 8192 * kept + 9
    seconds, product = 16 * 0.216 * kept + 0.3, 16 * (3.2 + 0.512) * kept + 0.9
    slope = (product - n * seconds / weight) / (square - n * n / weight)
    assert live.now(1).node == pytest.approx(slope, rel=1e-9)
    assert live.now(1).fixed == pytest.approx((seconds - slope * n) / weight, rel=1e-9)


def test_each_drafter_has_a_factor_of_its_own() -> None:
    other = Curve((1, 2), (0.2, 0.2))
    live = LiveCosts(replace(GIVEN, drafters={**GIVEN.drafters, "other": other}))
    level = GIVEN.drafters["draft"].seconds(1)

    def now(name: str) -> float:
        return live.now(1).drafters[name].seconds(1)

    for _ in range(400):
        # One takes twice what was expected; the other takes it, and mostly drafts alone.
        live.searched(1, 0.2, 2.0 * level, {"draft": now("draft")})
        live.searched(1, 0.2, 0.2, {"other": now("other")})
        live.searched(1, 0.2, 0.2 + 2.0 * level, {"draft": now("draft"), "other": now("other")})
        live.observe(1, 100, 1, GIVEN.target.seconds(1, 100, 1), 0.2)
    assert now("draft") == pytest.approx(2.0 * level, rel=0.05)
    assert now("other") == pytest.approx(0.2, rel=0.05)


def due_after(batch: int, steps: int) -> list[int]:
    """Steps before which a step without a search was due, and was taken."""
    live, found = LiveCosts(GIVEN), []
    for step in range(steps):
        due = live.plain_due(batch)
        if due:
            found.append(step)
        # Of the steps that search, every third finds nothing that pays.
        drafted = 0 if due or step % 3 == 0 else 3
        live.observe(batch + drafted, 100, batch, 1.0, 0.1)
        live.compare(batch, not due, batch + drafted, 1.0)
    return found


def test_after_many_steps_with_a_search_one_without_is_due() -> None:
    assert due_after(4, 260) == [4, 13, 30, 63, 128, 193, 258]
    # One sequence alone was measured beforehand.
    assert due_after(1, 260) == [64, 129, 194, 259]


def test_none_is_due_while_some_steps_do_not_search() -> None:
    live = LiveCosts(GIVEN)
    for step in range(100):
        assert not live.plain_due(4)
        live.compare(4, step % 3 > 0, 4, 1.0)


def test_sizes_beyond_the_table_are_corrected_one_by_one() -> None:
    # Of a slow model two sizes were timed, and the second one in a slow moment.
    live = LiveCosts(StepCosts(Curve((1, 2), (1.0, 1.2))))
    true = {1: 1.0, 2: 1.01, 8: 1.1, 16: 1.2, 64: 2.0}
    for _ in range(400):
        for tokens, seconds in true.items():
            live.observe(tokens, 0, 1, seconds, 0.0)
    found = live.now(1).target
    for tokens, seconds in true.items():
        assert found.seconds(tokens) == pytest.approx(seconds, rel=0.05)


def test_a_slow_first_level_does_not_count() -> None:
    live = LiveCosts(GIVEN)
    before = live.now(1).drafters["draft"].seconds(1)
    live.searched(1, 0.1, 4.0 * before, {"draft": before})
    assert live.now(1).drafters["draft"].seconds(1) == before
    live.searched(1, 0.1, 4.0 * before, {"draft": before})
    assert live.now(1).drafters["draft"].seconds(1) > 1.5 * before


def test_slow_levels_are_forgotten_while_a_drafter_is_not_asked() -> None:
    live = LiveCosts(GIVEN)
    before = live.now(1).drafters["draft"].seconds(1)
    for _ in range(20):
        live.searched(1, 0.1, 3.0 * before, {"draft": before})
    for _ in range(20):  # what it takes is not known
        live.searched(1, 0.1, 3.0 * before, {"draft": 0.0})
    slow = live.now(1).drafters["draft"].seconds(1)
    assert slow > 2.5 * before
    for _ in range(1024):
        live.searched(1, 0.1, 0.0, {})
    live.observe(1, 100, 1, GIVEN.target.seconds(1, 100, 1), 0.2)
    left = math.log(live.now(1).drafters["draft"].seconds(1) / before)
    assert left == pytest.approx(math.log(slow / before) / 4, rel=0.05)


def test_a_step_without_a_draft_corrects_its_own_size_alone() -> None:
    live = LiveCosts(GIVEN)
    for _ in range(64):
        live.observe(4 + 60, 100, 4, 3.0, 0.2)
    before = live.now(4).target
    for step in range(128):
        plain = step % 16 == 0
        live.observe(4 if plain else 64, 100, 4, 1.25 if plain else 3.0, 0.2)
    after = live.now(4).target
    assert before.seconds(4, 100, 4) > 1.6
    assert after.seconds(4, 100, 4) == pytest.approx(1.25, rel=0.1)
    assert after.seconds(64, 100, 4) == pytest.approx(3.0, rel=0.05)


def test_the_cost_of_a_prompt_is_learnt_from_pieces_of_prompts() -> None:
    live = LiveCosts(replace(GIVEN, prompt=Curve((1, 16, 64, 256), (3.0, 3.0, 4.0, 16.0))))
    for _ in range(200):
        live.observe_prompt(64, 8.0)
        live.observe_prompt(256, 20.0)
    assert live.prompt is not None
    assert live.prompt.seconds(64) == pytest.approx(8.0, rel=0.05)
    assert live.prompt.seconds(256) == pytest.approx(20.0, rel=0.05)
    # The attention of a long prompt's tokens to each other says nothing of pieces.
    before = live.prompt
    live.observe_prompt(513, 500.0)
    assert live.prompt == before
    live.observe_prompt(512, 500.0)
    assert live.prompt != before


def test_what_prompts_add_to_a_step_is_never_thought_to_be_nothing() -> None:
    live = LiveCosts(StepCosts(Curve((1, 8, 64), (1.0, 2.0, 4.0)), prompt=Curve((1, 64), (4, 4))))
    assert live.within(8, 8, 24) == 2.0, "the forward without them took 2"
    assert live.within(8, 64, 8) == pytest.approx(0.1 * 4.0 * 8 / 72)
    assert live.within(8, 8, 0) == 0.0, "though the curves of prompts and of trees differ there"
    for _ in range(100):
        live.observe(64, 0, 8, 5.0, 0.0, 8)
    assert live.within(8, 64, 8) > 3 * 0.1 * 4.0 * 8 / 72, "and it can be learnt"


def test_what_few_tokens_of_prompts_add_says_little() -> None:
    def after(tokens: int) -> float:
        live = LiveCosts(StepCosts(Curve((1, 101), (10.0, 110.0))))
        for _ in range(8):
            live.observe(10, 0, 1, 19.0 + 3 * tokens, 0.0, tokens)
        return live.within(1, 10, 1)

    assert after(32) == pytest.approx(after(64))
    assert 1.0 < after(1) < after(4) < after(32)


def test_the_cost_of_a_prompt_that_is_not_known_is_not_learnt() -> None:
    live = LiveCosts(GIVEN)
    live.observe_prompt(64, 8.0)
    assert live.prompt is None
