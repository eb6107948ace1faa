"""A request takes the memory of the tokens that it has, not of those that it may generate."""

import torch

from draftwood import Engine, Request, method
from draftwood.runner.attach import attach
from draftwood.runner.cache import KVCache, Plane
from draftwood.runner.runner import Runner
from tests.factories.tiny_llama import tiny_llama

WRITTEN, PROMPT, REQUESTS = 500, 100, 8


def decoded(runner: Runner) -> int:
    """Decode for 500 tokens with 32,000 allowed; returns the tokens that are cached."""
    engine = Engine(runner, method("ar"))
    for seed in range(REQUESTS):
        engine.add(Request([7 + seed] * PROMPT, max_new_tokens=32_000, eos=()))
    for _ in range(WRITTEN):
        engine.step()
    return REQUESTS * (PROMPT + WRITTEN)


def test_memory_is_that_of_the_tokens_written() -> None:
    runner = attach(tiny_llama(context=40_000), self_test=False)
    written = decoded(runner)
    assert all(runner.cache.length(slot) == PROMPT + WRITTEN for slot in range(REQUESTS))
    held = runner.cache.rows * runner.cache.stride
    assert written < held < 1.3 * written


def test_a_large_model_would_hold_as_many_entries() -> None:
    """Llama-3-8B's shape, without memory: bytes are by arithmetic."""
    runner = attach(tiny_llama(context=40_000), self_test=False)
    written = decoded(runner)
    plane = Plane(8, 128, torch.bfloat16, torch.device("meta"))
    cache = KVCache([(plane, plane)] * 32)
    cache.reserve(runner.cache.rows, runner.cache.stride)
    held = sum(tensor.numel() * tensor.itemsize for tensor in cache.tensors)
    token = 2 * 32 * 8 * 128 * 2
    assert held < 1.3 * written * token
