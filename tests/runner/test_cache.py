"""The KV cache: planes of any shape, and room that grows."""

import mmap
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from draftwood.runner import row_cache
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.cache import KVCache, Plane
from draftwood.runner.row_cache import RowCache

CPU = torch.device("cpu")
NARROW = Plane(2, 4, torch.float32, CPU)
WIDE = Plane(3, 5, torch.bfloat16, CPU)


def test_equal_planes_share_one_tensor() -> None:
    cache = RowCache([(NARROW, NARROW), (NARROW, WIDE)], margin=8)
    cache.open(10)
    assert [tuple(tensor.shape) for tensor in cache.tensors] == [(3, 1, 64, 2, 4), (1, 1, 64, 3, 5)]
    assert [tensor.dtype for tensor in cache.tensors] == [torch.float32, torch.bfloat16]
    uniform = RowCache([(NARROW, NARROW)] * 5)
    uniform.open(100)
    assert [tuple(tensor.shape) for tensor in uniform.tensors] == [(10, 1, 192, 2, 4)]
    assert not any(tensor.any() for tensor in uniform.tensors)


def test_a_layer_that_stores_nothing_has_the_entries_of_its_source() -> None:
    cache = RowCache([(NARROW, NARROW), (WIDE, NARROW), 0, 1])
    cache.open(10)
    assert [len(tensor) for tensor in cache.tensors] == [3, 1]
    for layer, source in ((2, 0), (3, 1)):
        pairs = zip(cache.flat(layer), cache.flat(source), strict=True)
        assert all(mine.data_ptr() == its.data_ptr() for mine, its in pairs)


def test_a_cache_that_cannot_grow_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RowCache([(NARROW, WIDE)], margin=8)
    row = cache.row(cache.open(10))
    cache.begin([row], [0], [10], None)
    before = [cache.rows, cache.stride, cache.generation, *map(id, cache.tensors)]
    made: list[object] = []

    def failing(shape: tuple[int, ...], plane: Plane) -> torch.Tensor:
        if made:
            raise MemoryError
        made.append(shape)
        return zeros(shape, plane)

    zeros = row_cache._zeros
    monkeypatch.setattr(row_cache, "_zeros", failing)
    for grow in (lambda: cache.open(5000), lambda: cache.make_room([row], [6000])):
        made.clear()
        with pytest.raises(MemoryError):
            grow()
        assert made, "the second tensor could not be made"
        assert [cache.rows, cache.stride, cache.generation, *map(id, cache.tensors)] == before
    monkeypatch.undo()
    cache.make_room([row], [6000])
    assert cache.stride >= 6000


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says what is in memory")
def test_longer_rows_take_the_memory_of_what_is_written() -> None:
    # A row of 17 MB in each of 16 layers, for 8 requests: 2.1 GB, of which 128 kB are written.
    plane = Plane(2, 32, torch.float32, CPU)
    cache = RowCache([(plane, plane)] * 8)
    rows = [cache.row(cache.open(4)) for _ in range(8)]
    cache.begin(rows, [0] * 8, [4] * 8, None)
    before = _in_memory()
    cache.reserve(0, 1 << 16)
    assert sum(tensor.nbytes for tensor in cache.tensors) >= 1 << 31
    assert _in_memory() - before < 32 << 20


def _in_memory() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


def test_growth_is_geometric() -> None:
    cache = RowCache([(NARROW, NARROW)], margin=8)
    row, sizes = cache.row(cache.open(1)), set()
    for start in range(0, 2100, 7):
        cache.reserve(0, start + 7)
        cache.begin([row], [start], [7], None)
        sizes.add(cache.stride)
    assert max(sizes) >= 2100
    assert len(sizes) < 20


class Interrupting(dict[int, int]):
    """Rows by slot, of which one is not noted, or not given up."""

    def __setitem__(self, slot: int, row: int) -> None:
        raise KeyboardInterrupt

    def __delitem__(self, slot: int) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("made", [RowCache, BlockCache])
def test_after_an_interrupt_no_two_slots_share_a_number_or_a_row(
    made: Callable[[list[tuple[Plane, Plane]]], KVCache],
) -> None:
    cache = made([(NARROW, NARROW)])
    first, second, third = (cache.open(10) for _ in range(3))
    cache.release(second)
    for interrupted in (lambda: cache.open(10), lambda: cache.release(first)):
        known = cache._row
        cache._row = Interrupting(known)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        cache._row = known
    opened = [first, third, *(cache.open(10) for _ in range(3))]
    assert len(set(opened)) == 5
    assert len({cache.row(slot) for slot in opened}) == 5
