"""A request takes the memory of the tokens that it has, not of those that it may generate."""

from typing import Any

import pytest
import torch

from draftwood import Engine, Request, method
from draftwood.engine.memory import MemoryLimit, Size, memory_bytes, prefix_bytes
from draftwood.engine.request import Finished
from draftwood.errors import DraftwoodError
from draftwood.runner.attach import attach
from draftwood.runner.cache import Plane
from draftwood.runner.row_cache import RowCache
from draftwood.runner.runner import Runner
from tests.factories.tiny_llama import tiny_llama

WRITTEN, PROMPT, REQUESTS = 500, 100, 8


WRITTEN_IN_ALL = REQUESTS * (PROMPT + WRITTEN)


@pytest.fixture(scope="module")
def runner() -> Runner:
    """A model that has decoded for 500 tokens of each request, with 32,000 allowed."""
    attached = attach(tiny_llama(context=40_000), self_test=False)
    engine = Engine(attached, method("ar"))
    for seed in range(REQUESTS):
        engine.add(Request([7 + seed] * PROMPT, max_new_tokens=32_000, eos=()))
    for _ in range(1 + WRITTEN):  # the first one caches the prompts
        engine.step()
    return attached


def test_memory_is_that_of_the_tokens_written(runner: Runner) -> None:
    assert all(runner.cache.length(slot) == PROMPT + WRITTEN for slot in range(REQUESTS))
    held = runner.cache.size
    assert WRITTEN_IN_ALL < held < 1.3 * WRITTEN_IN_ALL


def test_a_large_model_would_hold_as_many_entries(runner: Runner) -> None:
    """Llama-3-8B's shape, without memory: bytes are by arithmetic."""
    plane = Plane(8, 128, torch.bfloat16, torch.device("meta"))
    cache = RowCache([(plane, plane)] * 32)
    assert isinstance(runner.cache, RowCache)
    cache.reserve(runner.cache.rows, runner.cache.stride)
    held = sum(tensor.numel() * tensor.itemsize for tensor in cache.tensors)
    token = 2 * 32 * 8 * 128 * 2
    assert held < 1.3 * WRITTEN_IN_ALL * token


def test_requests_wait_for_memory() -> None:
    runner = attach(tiny_llama(context=4096), self_test=False)
    token = runner.info.token_bytes
    assert token == 2 * 2 * 2 * 8 * 4  # keys and values of two layers, two heads of 8 float32
    # Room for two requests of 100 + 200 tokens, of which a row takes 1.25 times as many and more.
    engine = Engine(runner, method("ar"), memory=2 * 600 * token)
    for seed in range(5):
        engine.add(Request([7 + seed] * PROMPT, max_new_tokens=200, eos=()))
    most, finished = 0, 0
    while engine.busy:
        events = engine.step()
        finished += sum(isinstance(event, Finished) for event in events)
        most = max(most, runner.cache.slots)
        held = runner.cache.size * token
        assert held <= 2 * 600 * token
    assert (most, finished) == (2, 5)


def test_what_never_fits_is_refused_at_once() -> None:
    runner = attach(tiny_llama(context=4096), self_test=False)
    engine = Engine(runner, method("ar"), memory="150KB")
    with pytest.raises(DraftwoodError, match=r"needs 1\.\d+ MB .* memory is 150 KB: ask for fewer"):
        engine.add(Request([1, 2, 3], max_new_tokens=4000))
    assert not engine.busy


def test_long_rows_are_given_back_for_many_short_ones() -> None:
    runner = attach(tiny_llama(context=4096), self_test=False)
    assert isinstance(runner.cache, RowCache)
    engine = Engine(runner, method("ar"), memory=1750 * runner.info.token_bytes)
    engine.generate([Request([1] * 1000, max_new_tokens=8, eos=())])
    assert runner.cache.stride > 1000
    done = engine.generate([Request([1] * 20, max_new_tokens=8, eos=()) for _ in range(6)])
    assert len(done) == 6
    assert runner.cache.stride < 500
    assert runner.cache.rows > 2


def begun(limit: MemoryLimit, own: Size) -> int:
    """Number of requests of a size that run at once."""
    running: list[Size] = []
    while limit.admits(running, own):
        running.append(own)
    return len(running)


def test_states_of_a_pool_count_until_they_are_given_back() -> None:
    limit = MemoryLimit(1000, token=1, slot=50, running=0, ahead=0, block=10)
    short, long = Size(5, 5), Size(0, 400)
    # 16 slots, as they grow by a quarter; 15 blocks, and 4 by which the pool may have grown.
    assert begun(limit, short) == 14
    # All have ended. The slots stay, and the next request needs 51 blocks.
    assert not limit.admits((), long)
    assert limit.wastes(short)
    limit.reset()
    assert limit.admits((), long)
    assert not limit.wastes(long)


def test_a_pool_stays_as_large_as_it_was() -> None:
    limit = MemoryLimit(1000, token=1, slot=50, running=0, ahead=0, block=10)
    assert limit.admits((), Size(0, 600))
    assert begun(limit, Size(5, 5)) == 4
    assert limit.wastes(Size(5, 5))
    limit.reset()
    assert begun(limit, Size(5, 5)) == 14


def test_a_pool_without_states_is_made_at_once_and_never_wasted() -> None:
    limit = MemoryLimit(1000, token=1, slot=0, running=0, ahead=0, block=10)
    assert limit.tokens == 1000
    assert begun(limit, Size(5, 5)) == 99
    assert not limit.wastes(Size(5, 5))


def test_what_a_running_request_keeps_is_given_back_when_it_ends() -> None:
    limit = MemoryLimit(1000, token=0, slot=0, running=100, ahead=0, block=10)
    assert limit.tokens is None
    assert begun(limit, Size(5, 5)) == 10
    assert limit.admits((), Size(5, 5))
    assert not limit.wastes(Size(5, 5))


def test_a_request_that_passes_the_check_begins_when_nothing_is_held() -> None:
    for block in (0, 10):
        for slot, running in ((0, 0), (50, 0), (50, 7)):
            limit = MemoryLimit(1000, 1, slot, running, ahead=3, block=block)
            for new in range(0, 1100, 7):
                try:
                    limit.check(Size(1, new))
                except DraftwoodError:
                    assert not limit.admits((), Size(1, new))
                else:
                    assert limit.admits((), Size(1, new))
                limit.reset()


@pytest.mark.parametrize(
    ("given", "found"), [(None, None), (5, 5), ("5", 5), ("4GB", 4 * 10**9), ("1.5 mb", 1500000)]
)
def test_memory_is_bytes_or_a_text(given: int | str | None, found: int | None) -> None:
    assert memory_bytes(given) == found


@pytest.mark.parametrize(
    ("given", "found"), [(None, None), (0, None), ("0", None), ("0GB", None), ("1KB", 1000), (7, 7)]
)
def test_a_prefix_cache_may_have_no_bytes(given: int | str | None, found: int | None) -> None:
    assert prefix_bytes(given) == found


@pytest.mark.parametrize("given", [-1, "", "GB", "-1"])
def test_other_prefix_caches_are_refused(given: Any) -> None:
    with pytest.raises(DraftwoodError, match=r"prefix_cache is .* or 0 for none"):
        prefix_bytes(given)


@pytest.mark.parametrize("given", [0, -1, "", "GB", "4 apples", "1.2.3", 2.5])
def test_other_memory_is_refused(given: Any) -> None:
    with pytest.raises(DraftwoodError, match="memory"):
        memory_bytes(given)
