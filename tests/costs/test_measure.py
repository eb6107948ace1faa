"""Timing with a clock that only the timed work advances."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftwood.costs.fit import fit
from draftwood.costs.measure import (
    PROMPTS,
    SHORTEST,
    Grid,
    binary_tree,
    measure_levels,
    measure_prompts,
    measure_target,
    time_in_rounds,
)
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.drafters._rollout.topk import Place
from draftwood.drafters.adjacency.drafter import Adjacency
from draftwood.drafters.medusa.drafter import MedusaDrafter
from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, Outcome, Prefill, TargetOutput
from draftwood.tree import TokenTree
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.medusa_heads import made_heads


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Slow(MarkovTarget):
    """A Markov chain that takes known seconds: by tokens, cached tokens and their product."""

    def __init__(self, clock: Clock, fill: float = 0.0, **kwargs: int) -> None:
        super().__init__(**kwargs)
        self.clock = clock
        self.fill = fill
        self.asked: list[Needs] = []

    def prefill(self, slots, prompts, needs, hidden=()):  # type: ignore[no-untyped-def]
        self.clock.now += self.fill * sum(map(len, prompts))
        return super().prefill(slots, prompts, needs, hidden)

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence = (),  # type: ignore[type-arg]
        unread: Sequence[int] = (),
    ) -> list[TargetOutput]:
        self.asked.append(needs)
        counts = [len(tree) - first for tree, first in zip(trees, done or [0] * 99, strict=False)]
        self.clock.now += seconds(sum(counts), sum(len(self.cached[s]) for s in slots), len(slots))
        return super().forward(slots, trees, needs, done, hidden, unread)


def seconds(tokens: int, context: int, batch: int) -> float:
    return (
        1.0 + 0.1 * tokens + 0.01 * context + 0.001 * tokens * context / batch + 0.5 * (batch - 1)
    )


GRID = Grid(sizes=(1, 2, 4, 8), contexts=(16, 64), batches=(1, 3), seconds=1000.0)


def test_the_targets_costs_are_found() -> None:
    clock = Clock()
    target = Slow(clock)
    found = measure_target(target, GRID, Needs(top_k=3), clock)
    assert {(s.tokens, s.context, s.batch) for s in found} == {
        (n * b, c * b, b) for n in (1, 2, 4, 8) for c in (16, 64) for b in (1, 3)
    }
    for sample in found:
        assert sample.seconds == pytest.approx(seconds(sample.tokens, sample.context, sample.batch))
    curve = fit(found)
    assert curve.seconds(5, 40, 2) == pytest.approx(seconds(5, 40, 2))
    assert curve.per_sequence == pytest.approx(0.5)
    assert set(target.asked) == {Needs(top_k=3)}
    assert not target.cached
    # The bound is kept, up to the forward that it falls in.
    assert 1000.0 <= clock.now < 1010.0


def test_the_time_limit_may_end_the_first_round() -> None:
    clock = Clock()
    target = Slow(clock)
    found = measure_target(target, Grid(sizes=(1, 2, 4), contexts=(16,), seconds=1e-6), clock=clock)
    assert [s.tokens for s in found] == [1, 2]
    assert not target.cached


def test_contexts_that_take_too_long_to_fill_are_left_out() -> None:
    clock = Clock()
    target = Slow(clock, fill=1.0)
    found = measure_target(target, Grid((1, 2), (16, 64), seconds=100.0), clock=clock)
    assert {s.context for s in found} == {16}
    found = measure_target(target, Grid((1, 2), (16, 64), seconds=400.0), clock=clock)
    assert {s.context for s in found} == {16, 64}


def test_disturbed_rounds_do_not_count() -> None:
    clock, turn = Clock(), [0]

    def probe() -> float:
        turn[0] += 1
        took = 50.0 if turn[0] == 1 or turn[0] % 4 == 3 else 2.0
        clock.now += took
        return took

    (sample,) = time_in_rounds({(1, 10, 2): probe}, 500.0, clock)
    assert (sample.tokens, sample.context, sample.batch, sample.seconds) == (2, 20, 2, 2.0)


def test_sizes_are_timed_in_rounds() -> None:
    clock = Clock()
    order: list[int] = []

    def probe(i: int) -> float:
        order.append(i)
        clock.now += 1.0
        return 1.0

    time_in_rounds({(i, 1, 1): (lambda i=i: probe(i)) for i in (1, 2, 3)}, 7.5, clock)  # type: ignore[misc]
    assert order == [1, 1, 2, 3, 1, 2, 3, 1, 2]


def test_every_size_gets_the_same_share_of_the_time() -> None:
    clock = Clock()
    counts = {1: 0, 2: 0}

    def probe(i: int, took: float) -> float:
        counts[i] += 1
        clock.now += took
        return took

    cheap, dear = (1, 1, 1), (2, 1, 1)
    time_in_rounds({cheap: lambda: probe(1, 1.0), dear: lambda: probe(2, 5.0)}, 46.0, clock)
    assert counts[2] >= 4
    assert 4 * counts[2] < counts[1] < 6 * counts[2]


def test_quick_forwards_are_not_repeated_for_ever() -> None:
    counts = [0]

    def probe() -> float:
        counts[0] += 1
        return 1e-6

    time_in_rounds({(1, 1, 1): probe}, 1e9, Clock())
    assert 10 < counts[0] < 1000


def test_longer_contexts_are_timed_with_some_sizes() -> None:
    clock = Clock()
    grid = Grid((1, 2, 4, 8, 16), (16, 64), seconds=1000.0, thin=2)
    found = measure_target(Slow(clock), grid, clock=clock)
    assert [s.tokens for s in found if s.context == 16] == [1, 2, 4, 8, 16]
    assert [s.tokens for s in found if s.context == 64] == [1, 4, 16]
    assert fit(found).seconds(7, 40) == pytest.approx(seconds(7, 40, 1), rel=1e-3)


ROWS = Needs(top_k=3, prompt_rows=True)


def test_prompts_are_timed_with_the_rows_that_drafters_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Needs] = []
    target, prefill = MarkovTarget(context_limit=1024), MarkovTarget.prefill

    def noted(self: MarkovTarget, slots: Any, prompts: Any, needs: Needs) -> Any:
        asked.append(needs)
        return prefill(self, slots, prompts, needs)

    monkeypatch.setattr(MarkovTarget, "prefill", noted)
    measure_prompts(target, ROWS)
    assert asked
    assert set(asked) == {ROWS}


def test_prompts_are_timed() -> None:
    clock = Clock()
    target = Slow(clock, fill=0.5, context_limit=1024)
    found = measure_prompts(target, ROWS, 1000.0, clock)
    assert [(s.tokens, s.context, s.batch) for s in found] == [(n, 0, 1) for n in PROMPTS]
    assert [s.seconds for s in found] == [pytest.approx(0.5 * n) for n in PROMPTS]
    assert not target.cached
    assert [s.tokens for s in measure_prompts(target, ROWS, 50.0, clock)] == [16, 64]
    assert measure_prompts(MarkovTarget(context_limit=16), ROWS) == []


def test_first_forwards_are_not_timed_where_they_compile() -> None:
    clock, called = Clock(), [0]

    def probe() -> float:
        called[0] += 1
        took = 50.0 if called[0] == 1 else 2.0
        clock.now += took
        return took

    (sample,) = time_in_rounds({(1, 1, 1): probe}, 1.0, clock, warm=True)
    assert sample.seconds == 2.0
    assert called == [2]


def test_levels_are_timed_without_what_precedes_them() -> None:
    clock = Clock()
    target = MarkovTarget()
    model = Slow(clock, seed=3)
    found = measure_levels(ModelDrafter(model, target.info), "draft", target, GRID, clock)
    for sample in found:
        # Cached in the draft model: the prompt; a level's own forward scores its nodes alone.
        assert sample.seconds == pytest.approx(seconds(sample.tokens, sample.context, sample.batch))
    assert not target.cached
    assert not model.cached


def test_one_forward_that_serves_all_levels_is_timed() -> None:
    clock = Clock()
    target = Slow(clock)
    drafter = MedusaDrafter(made_heads(3, target.info), target.info)
    marginals = drafter.marginals

    def slow(slots: Sequence[int]) -> list[list[Place]]:
        clock.now += 5.0 * len(slots)
        return marginals(slots)

    drafter.marginals = slow  # type: ignore[method-assign]
    found = measure_levels(drafter, "draft", target, GRID, clock)
    assert {sample.batch for sample in found} == {1, 3}
    for sample in found:
        assert sample.seconds == pytest.approx(5.0 * sample.batch)
    assert not target.cached


def test_texts_do_not_grow_while_a_forward_is_timed() -> None:
    clock, grown, longest = Clock(), Counter[int](), [0]
    target = Slow(clock)
    drafter = MedusaDrafter(made_heads(3, target.info), target.info)
    begin, observe, marginals = drafter.begin, drafter.observe, drafter.marginals

    def begun(slot: int, prefill: Prefill) -> None:
        grown[slot] = 0
        begin(slot, prefill)

    def observed(slot: int, outcome: Outcome) -> None:
        grown[slot] += len(outcome.committed)
        observe(slot, outcome)

    def slow(slots: Sequence[int]) -> list[list[Place]]:
        longest[0] = max(longest[0], *(grown[slot] for slot in slots))
        clock.now += 5.0
        return marginals(slots)

    drafter.begin, drafter.observe = begun, observed  # type: ignore[method-assign]
    drafter.marginals = slow  # type: ignore[method-assign]
    grid = Grid((1, 2), (8, 64), (1, 3), seconds=2000.0)
    assert len(measure_levels(drafter, "draft", target, grid, clock)) == 8
    assert longest == [16]


def test_a_drafter_without_a_model_has_no_levels() -> None:
    target = MarkovTarget()
    drafter = Adjacency().build(FakeHost(target.info))
    assert not measure_levels(drafter, "adjacency", target, Grid((1, 2), (16,)), Clock())
    assert not target.cached


def test_a_context_beyond_the_models_is_refused() -> None:
    target = MarkovTarget(context_limit=64)
    grid = Grid((1, 8), (16, 60), seconds=1.0)
    with pytest.raises(DraftwoodError, match=r"60 cached tokens and 8 more do not fit .* 64"):
        measure_target(target, grid)


@given(limit=st.integers(1, 128))
@example(limit=SHORTEST - 1)
@example(limit=SHORTEST)
@example(limit=128)
def test_a_grid_is_cut_to_what_a_short_context_holds(limit: int) -> None:
    if limit < SHORTEST:
        with pytest.raises(DraftwoodError, match=f"no tree fits a context of {limit} tokens"):
            Grid().fitted(limit)
        return
    fitted = Grid().fitted(limit)
    assert len(fitted.sizes) >= 2
    assert fitted.sizes[-1] <= max(2, limit // 2)
    assert fitted.sizes[-1] + fitted.contexts[-1] <= limit
    assert (fitted.batches, fitted.seconds) == (Grid().batches, Grid().seconds)
    # All of it can be timed, and has a curve.
    quick = replace(fitted, seconds=0.001)
    assert fit(measure_target(MarkovTarget(context_limit=limit), quick)).seconds(64) > 0.0


def test_a_grid_that_fits_is_unchanged() -> None:
    assert Grid().fitted(1024) == Grid()
    assert Grid((1, 8), (16, 60)).fitted(64) == Grid((1, 8), (16,))
    assert Grid((1, 8), (16, 60)).fitted(20) == Grid((1, 8), (12,))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sizes": (2, 1)}, "sizes are"),
        ({"sizes": (4,)}, "give two or more"),
        ({"contexts": ()}, "contexts are"),
        ({"batches": (0,)}, "batches are"),
        ({"seconds": 0.0}, "give more than 0"),
        ({"seconds": math.nan}, "give more than 0"),
    ],
)
def test_a_grid_out_of_range_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        Grid(**wrong)  # type: ignore[arg-type]


def test_the_timed_tree_is_a_binary_tree() -> None:
    tree = binary_tree(7, 13)
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert np.all(tree.tokens < 13)
    assert len(binary_tree(64, 100)) == 64


def test_the_time_limit_holds_on_a_real_clock() -> None:
    samples = measure_target(MarkovTarget(), Grid((1, 2, 4), (8, 32), seconds=0.1))
    assert fit(samples).seconds(4, 32) > 0.0
