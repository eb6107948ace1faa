"""Drafting that is slower than plain decoding is left for most steps, and is tried again."""

import random
from statistics import fmean

import pytest

from draftwood.costs.guard import Guard

SETTLED = 64
"""Drafted steps between two plain ones."""


class Run:
    """Steps of a batch, plain or drafted as the guard says, with noise in tokens and seconds."""

    def __init__(self, batch: int, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._batch, self._guard = batch, Guard(batch)
        self._drafted, self._after = 0, 4

    def go(self, steps: int, gain: float, cost: float) -> tuple[float, float]:
        """Tokens per second over plain decoding's, and the share of steps with drafts.

        Args:
            steps: of the whole batch.
            gain: mean tokens of a drafted step, a request.
            cost: mean seconds of it, in those of a plain step.
        """
        tokens = seconds = searches = 0.0
        for _ in range(steps):
            searched = self._guard.drafts and self._drafted < self._after
            if searched:
                self._drafted += 1
            elif self._guard.drafts:
                self._drafted, self._after = 0, min(SETTLED, 2 * self._after)
            more = sum(self._rng.expovariate(1.0 / (gain - 1.0)) for _ in range(self._batch))
            committed = 1.0 + (more / self._batch if searched else 0.0)
            took = (cost if searched else 1.0) * self._rng.lognormvariate(0.0, 0.1)
            self._guard.observe(searched, committed, took)
            tokens, seconds, searches = tokens + committed, seconds + took, searches + searched
        return tokens / seconds, searches / steps


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize(("gain", "cost"), [(1.9, 2.24), (1.5, 1.8), (1.01, 1.2)])
def test_a_slower_method_costs_little(batch: int, gain: float, cost: float) -> None:
    assert gain / cost < 0.86
    speed, share = Run(batch).go(3000, gain, cost)
    assert speed > 0.955
    assert 0.01 < share < 0.2


@pytest.mark.parametrize(("batch", "least"), [(4, 0.94), (16, 0.96)])
def test_a_large_batch_shows_sooner_that_a_method_is_slower(batch: int, least: float) -> None:
    speeds = [Run(batch, seed).go(150, 1.01, 1.25)[0] for seed in range(20)]
    assert fmean(speeds) > least


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize(("gain", "cost"), [(1.2, 1.05), (2.0, 1.5), (4.0, 1.6)])
def test_a_faster_method_is_not_left(batch: int, gain: float, cost: float) -> None:
    speed, share = Run(batch).go(3000, gain, cost)
    assert share > 0.95
    assert speed > 0.96 * gain / cost


@pytest.mark.parametrize("batch", [1, 16])
def test_drafting_that_pays_again_is_found(batch: int) -> None:
    run = Run(batch)
    assert run.go(1500, 1.2, 1.5)[1] < 0.2
    run.go(400, 3.0, 1.5)
    speed, share = run.go(600, 3.0, 1.5)
    assert share > 0.95
    assert speed > 1.8


def test_a_pause_of_the_machine_decides_nothing() -> None:
    guard = Guard(1)
    for step in range(200):
        searched = step % 16 != 0
        guard.observe(searched, 2.0 if searched else 1.0, 1000.0 if step == 100 else 1.0)
        assert guard.drafts


def test_steps_without_a_time_are_not_counted() -> None:
    guard = Guard(4)
    for step in range(200):
        guard.observe(step % 8 != 0, 1.0, 0.0)
    assert guard.drafts
