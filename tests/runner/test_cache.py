"""The KV cache: planes of any shape, and room that grows."""

import pytest
import torch

from draftwood.runner import row_cache
from draftwood.runner.cache import Plane
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


def test_growth_is_geometric() -> None:
    cache = RowCache([(NARROW, NARROW)], margin=8)
    row, sizes = cache.row(cache.open(1)), set()
    for start in range(0, 2100, 7):
        cache.reserve(0, start + 7)
        cache.begin([row], [start], [7], None)
        sizes.add(cache.stride)
    assert max(sizes) >= 2100
    assert len(sizes) < 20
