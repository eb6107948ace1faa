"""A KV cache in blocks: rows take blocks as their texts come to them, and give them back."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from draftwood import Engine, Request, method
from draftwood.engine.request import Finished
from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import BLOCK
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.block_cache import SPARE, BlockCache
from draftwood.runner.cache import Plane
from draftwood.runner.masks import LayerKind
from draftwood.runner.ramps import Ramps
from draftwood.runner.row_cache import RowCache
from draftwood.runner.runner import Runner
from tests.factories.interpreted_attention import attend_by_kernel
from tests.factories.tiny_llama import tiny_llama

CPU = torch.device("cpu")
NARROW = Plane(2, 4, torch.float32, CPU)
WIDE = Plane(3, 5, torch.bfloat16, CPU)
LAYERS = [(NARROW, NARROW), (NARROW, WIDE)]


@pytest.fixture(autouse=True)
def _as_in_a_forward() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture
def cache() -> BlockCache:
    return BlockCache([*LAYERS, 0])


def entries_of(cache: BlockCache, row: int, start: int, count: int) -> list[int]:
    """The entries of a row's tokens as the host says."""
    into = np.zeros(count, dtype=np.int64)
    Ramps().write(*cache.runs([row], [start], [count]), into)
    return into.tolist()


def looked_up(cache: BlockCache, row: int, count: int) -> list[int]:
    """The entries of a row's first tokens as the kernel finds them."""
    firsts = cache.table[row].tolist()
    return [firsts[token // BLOCK] + token % BLOCK for token in range(count)]


def filled(cache: BlockCache, length: int, value: float) -> int:
    """A new slot with so many tokens, whose keys and values are the value plus their place."""
    slot = cache.open(length)
    row = cache.row(slot)
    cache.make_room([row], [length])
    where = torch.tensor(entries_of(cache, row, 0, length))
    cache.begin([row], [0], [length], where, torch.tensor([row]))
    numbers = value + torch.arange(length, dtype=torch.float32)
    for layer, (keys, values) in enumerate(LAYERS):
        given = [
            numbers.view(1, 1, -1, 1).expand(1, plane.heads, -1, plane.width).to(plane.dtype)
            for plane in (keys, values)
        ]
        cache.update(given[0], given[1], layer)
    cache.resize(slot, length)
    return slot


def held(cache: BlockCache, slots: Sequence[int]) -> torch.Tensor:
    """What layer 0 has as keys of some slots' tokens, ``[b, n]``."""
    return cache.held(slots, 0)[0][:, 0, :, 0]


def test_rows_take_blocks_as_tokens_come(cache: BlockCache) -> None:
    rows = [cache.row(cache.open(10_000)) for _ in range(3)]
    assert cache.size == 0
    for end in range(0, 1000, 90):
        cache.make_room(rows, [end, end // 2, 1])
    found = [entries_of(cache, row, 0, n) for row, n in zip(rows, (990, 495, 1), strict=True)]
    everything = [entry for own in found for entry in own]
    assert len(everything) == len(set(everything)) == 990 + 495 + 1
    assert min(everything) >= BLOCK > SPARE  # the first block is of no row
    for row, own in zip(rows, found, strict=True):
        assert looked_up(cache, row, len(own)) == own
    assert max(everything) < cache.size <= 1.25 * BLOCK * (1 + 4 + 2 + 1)


def test_of_an_empty_pool_nothing_is_held(cache: BlockCache) -> None:
    keys, values = cache.held([cache.open(10)], 0)
    assert keys.shape[:3] == (1, LAYERS[0][0].heads, 0)
    assert values.shape[:3] == (1, LAYERS[0][1].heads, 0)


def test_runs_end_with_blocks(cache: BlockCache) -> None:
    one, other = cache.row(cache.open(1)), cache.row(cache.open(1))
    cache.make_room([one], [BLOCK])
    cache.make_room([other], [1])
    cache.make_room([one], [3 * BLOCK])
    firsts, counts = cache.runs([one, other], [BLOCK - 2, 5], [BLOCK + 4, 3])
    assert counts == [2, BLOCK, 2, 3]
    assert firsts == [2 * BLOCK - 2, 3 * BLOCK, 4 * BLOCK, 2 * BLOCK + 5]


def test_blocks_of_closed_slots_are_handed_out_again(cache: BlockCache) -> None:
    first, second = filled(cache, 3 * BLOCK, 1.0), filled(cache, 10, 5.0)
    size, generation = cache.size, cache.generation
    cache.release(first)
    with pytest.raises(DraftwoodError, match="is not open"):
        cache.row(first)
    third = filled(cache, 3 * BLOCK, 7.0)
    assert (cache.size, cache.generation) == (size, generation)
    assert held(cache, [second]).tolist() == [[5.0 + i for i in range(10)]]
    assert held(cache, [third])[0, -1] == 7.0 + 3 * BLOCK - 1


def test_growing_keeps_what_is_held(cache: BlockCache) -> None:
    slots = [filled(cache, length, value) for length, value in ((300, 0.5), (5, 2.0), (700, 9.5))]
    generation = cache.generation
    last = filled(cache, 80 * BLOCK, 3.5)  # beyond the first pool and the first table
    assert cache.generation > generation
    assert looked_up(cache, cache.row(last), 300) == entries_of(cache, cache.row(last), 0, 300)
    for slot, length, value in zip(slots, (300, 5, 700), (0.5, 2.0, 9.5), strict=True):
        assert torch.equal(held(cache, [slot])[0], value + torch.arange(length))
    many = [filled(cache, 3, float(i)) for i in range(12)]
    assert [held(cache, [slot])[0, 0] for slot in many] == list(range(12))
    together = held(cache, [slots[1], many[4]])
    assert together[0].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert together[1, :3].tolist() == [4.0, 5.0, 6.0]


def test_a_saved_beginning_is_restored_into_other_blocks(cache: BlockCache) -> None:
    one = filled(cache, 600, 1.0)
    saved = cache.saved(one, 550)
    assert [tensor.shape[1] for tensor in saved.tensors] == [550, 550]
    other = cache.open(1)
    cache.restore(other, saved, 530)
    cache.release(one)
    filled(cache, 600, -3.0)
    assert cache.length(other) == 530
    assert torch.equal(held(cache, [other])[0], 1.0 + torch.arange(530))
    values = cache.held([other], 1)[1][0, 0, :, 0]
    assert torch.equal(values, (1.0 + torch.arange(530)).bfloat16())


def test_a_slot_lends_its_beginning(cache: BlockCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftwood.runner.block_cache._LENT", 200)
    one, other = filled(cache, 600, 1.0), cache.open(1)
    cache.lend(one, other, 530)
    cache.release(one)
    filled(cache, 600, -3.0)
    assert cache.length(other) == 530
    assert torch.equal(held(cache, [other])[0], 1.0 + torch.arange(530))


def test_an_accepted_path_moves_over_the_end_of_a_block(cache: BlockCache) -> None:
    slot = filled(cache, BLOCK + 3, 0.0)
    cache.resize(slot, BLOCK - 2)  # the root is the last but one token of the block
    sources, targets = cache.advance([slot], [[2, 4]])
    cache.move(torch.tensor(sources), torch.tensor(targets))
    assert cache.length(slot) == BLOCK + 1
    assert held(cache, [slot])[0, -3:].tolist() == [BLOCK - 2.0, BLOCK, BLOCK + 2]


def test_swapped_slots_have_each_other_s_tokens(cache: BlockCache) -> None:
    one, other = filled(cache, 3, 1.0), filled(cache, 300, 2.0)
    cache.swap_slots(one, other)
    assert (cache.length(one), cache.length(other)) == (300, 3)
    assert held(cache, [other]).tolist() == [[1.0, 2.0, 3.0]]


def test_all_memory_is_given_back_when_nothing_is_open(cache: BlockCache) -> None:
    slots = [filled(cache, 3, float(i)) for i in range(12)]
    cache.trim()
    assert cache.size > 0
    for slot in slots:
        cache.release(slot)
    cache.trim()
    assert cache.size == 0
    again = [filled(cache, 3, float(i)) for i in range(12)]
    assert [held(cache, [slot])[0, 0] for slot in again] == list(range(12))


def test_a_pool_that_is_made_at_once_does_not_grow(cache: BlockCache) -> None:
    cache.allocate(40 * BLOCK)
    filled(cache, 3, 0.0)
    generation = cache.generation
    assert cache.size == 40 * BLOCK
    for _ in range(6):
        filled(cache, 6 * BLOCK, 0.0)
    assert (cache.size, cache.generation) == (40 * BLOCK, generation)


def test_one_long_request_costs_the_others_nothing() -> None:
    """Llama-3-8B's shape, without memory: seven texts of 500 tokens beside one of 32,000."""
    plane = Plane(8, 128, torch.bfloat16, torch.device("meta"))
    lengths = [32_000, *[500] * 7]
    blocks = BlockCache([(plane, plane)] * 32)
    blocks.make_room([blocks.row(blocks.open(1)) for _ in lengths], lengths)
    rows = RowCache([(plane, plane)] * 32)
    for length in lengths:
        rows.open(length)
    assert blocks.size < 1.3 * sum(lengths)
    assert rows.size > 7 * sum(lengths)


def test_requests_take_what_they_may_need_by_themselves() -> None:
    runner = attach(tiny_llama(context=4096), packing=False, self_test=False)
    cache = attend_by_kernel(runner, (LayerKind("full_attention"),), 2)
    token = runner.info.token_bytes
    # Room for a long request and two short ones, but not for three rows of the long one's length.
    memory = (1 + 4 + 2) * BLOCK * token
    engine = Engine(runner, method("ar"), memory=memory)
    with pytest.raises(DraftwoodError, match="ask for fewer tokens"):
        engine.add(Request([1], max_new_tokens=6 * BLOCK, eos=()))
    engine.add(Request([1, 2, 3], max_new_tokens=3 * BLOCK, eos=()))
    for seed in range(3):
        engine.add(Request([7 + seed], max_new_tokens=4, eos=()))
    most, finished, generations = 0, 0, set()
    while finished < 3:
        finished += sum(isinstance(event, Finished) for event in engine.step())
        most = max(most, cache.slots)
        generations.add(cache.generation)
        assert cache.size * token <= memory
    assert most == 3
    assert len(generations) == 1
    assert engine.busy
    engine.cancel(0)
    runner.detach()


@pytest.mark.parametrize("name", ["sd", "pard"])
def test_pools_of_drafters_are_made_at_once_as_well(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(
        Runner, "allocate", lambda runner, tokens: made.append((runner.info.token_bytes, tokens))
    )
    runner = attach(tiny_llama(context=4096), packing=False, self_test=False)
    attend_by_kernel(runner, (LayerKind("full_attention"),), 2)
    small = tiny_llama(seed=1, layers=1, context=4096)
    small.config.pard_token = 3
    token = sum(each.token_bytes for each in (runner.info, attach(small).info))
    Engine(runner, method(name, draft=small), memory=20 * BLOCK * token)
    target = (runner.info.token_bytes, 20 * BLOCK)
    assert made == [target, (token - target[0], 20 * BLOCK)]
    made.clear()
    Engine(runner, method(name, draft=small))
    assert not made, "without a limit, they grow"
    runner.detach()


def test_prompts_and_trees_cross_the_ends_of_blocks() -> None:
    model = tiny_llama(context=4096)
    plain = attach(model, packing=False, self_test=False)
    prompt = [int(t) for t in np.random.default_rng(0).integers(5, 40, size=2 * BLOCK - 5)]
    request = Request(prompt, max_new_tokens=12, eos=())
    expected = Engine(plain, method("ar")).generate([request])[0].tokens
    plain.detach()
    runner = attach(model, packing=False, chunk=100, self_test=False)
    cache = attend_by_kernel(runner, (LayerKind("full_attention"),), 2)
    found = Engine(runner, method("goose:budget=6")).generate([request, request])
    assert [each.tokens for each in found] == [expected, expected]
    assert cache.size >= 2 * 3 * BLOCK
    slot = runner.open(1)
    assert runner.prefill([slot], [prompt], Needs())[0].logits.shape[0] == 1
    runner.detach()
