"""The parts of auto that a replay makes perfect."""

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.lab.replay.figures import BatchLoad
from draftwood.policies.auto import policy, tuner
from draftwood.policies.auto.forecast import DEFAULT_FORECAST
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from runs.smollm2.oracles import ORACLES, both, free, perfect, reveal
from tests.policies.auto.codes import by_place

COSTS = StepCosts(Curve((1, 9, 17), (1.0, 1.0, 9.0)), node=0.01)


def test_right_candidates_are_sure_and_others_impossible() -> None:
    pool = Pool(5, DEFAULT_FORECAST.acceptance, 0.01, 64)
    pool.copy([6, 7, 8], by_place(4), "context")
    pool.copy([6, 9], by_place(4, preferred=False), "context")
    before = pool.chosen(0.0, 64)
    assert len(before) == 4
    assert reveal(pool, [6, 9, 9, 9]) == [1.0, 1.0]
    chosen = pool.chosen(0.5, 64)
    assert [pool.builder.tokens[node] for node in chosen] == [6, 9]
    assert pool.tree(chosen, "auto").logq.tolist() == [0.0, 0.0, 0.0]
    assert reveal(pool, [1]) == []
    assert pool.chosen(0.5, 64) == []


def test_a_draft_that_is_always_right_is_as_long_as_pays() -> None:
    found = perfect(COSTS, BatchLoad(1, 0))
    assert found["drafted_per_step"] == 8
    assert found["speedup"] == pytest.approx(9 * 1.0 / 1.08)
    assert free(COSTS, BatchLoad(1, 0)).step(65) == COSTS.step(1)


def test_a_batch_fills_the_free_nodes_of_a_forward() -> None:
    load = BatchLoad(4, 0)
    found = perfect(COSTS, load)
    assert found["drafted_per_step"] == 1
    assert found["speedup"] == pytest.approx(2 * 1.0 / 1.04)
    assert free(COSTS, load).step(65, batch=4) == COSTS.step(4, batch=4)


def test_everything_is_put_back() -> None:
    def state() -> tuple[object, ...]:
        return Auto.grow, policy._POOL, policy._REACH, tuner._LOWEST, tuner._HIGHEST

    before = state()
    with both():
        assert not set(map(id, state())) & set(map(id, before))
    assert state() == before
    assert list(ORACLES) == ["auto", "acceptance", "search", "both"]
