"""What a step costs outside of the model: memory of indexes, CPU time by phase."""

import time
import tracemalloc

import pytest

from draftwood import Engine, Request, load
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.runner.attach import attach
from runs.engine_overhead import index_memory, traced_mb
from runs.host_work import FORWARD, HAND_OVER, PHASES, Laps, host_work, watched_phases
from tests.factories.drafted import target


@pytest.mark.slow
def test_both_indexes_hold_memory() -> None:
    found = index_memory(ModelHost(attach(load("embedded").model, packing=False)), 3000)
    assert found["tokens"] >= 3000
    assert found["context_mb"] > 0
    assert found["adjacency_mb"] > 0


def test_a_pattern_without_a_file_is_an_error() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DraftwoodError, match="no memory is held by none"):
            traced_mb("none.py")
    finally:
        tracemalloc.stop()


def spun(seconds: float) -> None:
    """Use the CPU for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_an_inner_lap_is_not_in_the_outer_one() -> None:
    laps = Laps()
    with laps.lap("outer"):
        spun(0.01)
        laps.timed("inner", spun)(0.04)
        time.sleep(0.05)
    assert 0.04 <= laps.seconds["inner"] < 0.05
    assert 0.01 <= laps.seconds["outer"] < 0.02


def test_the_phases_of_a_step_are_timed() -> None:
    model = target()
    engine = Engine(attach(model, packing=False), method("goose:budget=4:bypass=off"))
    found = host_work(engine, model, [[5, 6, 7, 5, 6, 7]] * 2)
    assert found["steps"] > 5
    assert found["drafted"] == 8
    assert all(found[name] > 0 for name in (*PHASES, HAND_OVER, "rest"))
    assert found["sum"] >= max(found[name] for name in PHASES)
    with watched_phases(model) as laps:
        engine.generate([Request([5, 6, 7], max_new_tokens=3)])
    assert laps.seconds[FORWARD] > laps.seconds["draft"]
    seen = dict(laps.seconds)
    engine.generate([Request([5, 6, 7], max_new_tokens=3)])
    assert laps.seconds == seen, "outside of the context nothing is timed"
