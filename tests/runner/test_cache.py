"""The KV cache: planes of any shape, rows that move, room that grows."""

import pytest
import torch

from draftwood.runner.cache import KVCache, Plane

CPU = torch.device("cpu")
NARROW = Plane(2, 4, torch.float32, CPU)
WIDE = Plane(3, 5, torch.bfloat16, CPU)


def write(
    cache: KVCache, slot: int, count: int, seed: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Write ``count`` random tokens behind what the slot holds; what was written, per layer."""
    generator = torch.Generator().manual_seed(seed)
    row, start = cache.row(slot), cache.length(slot)
    cache.reserve(0, start + count)
    entries = torch.arange(count) + row * cache.stride + start
    written = []
    with torch.inference_mode():
        cache.begin([row], [start], count, start + count, entries if seed % 2 else None)
        for layer in range(2):
            planes = [(NARROW, NARROW), (NARROW, WIDE)][layer]
            k, v = (
                torch.randn(1, p.heads, count, p.width, generator=generator).to(p.dtype)
                for p in planes
            )
            keys, values = cache.update(k, v, layer)
            assert keys.shape == (1, planes[0].heads, start + count, planes[0].width)
            assert torch.equal(keys[:, :, start:], k)
            assert torch.equal(values[:, :, start:], v)
            written.append((k[0].transpose(0, 1), v[0].transpose(0, 1)))
    cache.resize(slot, start + count)
    return written


@pytest.fixture
def cache() -> KVCache:
    return KVCache([(NARROW, NARROW), (NARROW, WIDE)], margin=8)


def holds(cache: KVCache, slot: int, parts: list[list[tuple[torch.Tensor, torch.Tensor]]]) -> bool:
    return all(
        torch.equal(
            cache.tokens(slot, layer)[kind], torch.cat([part[layer][kind] for part in parts])
        )
        for layer in range(2)
        for kind in range(2)
    )


def test_equal_planes_share_one_tensor(cache: KVCache) -> None:
    cache.open(10)
    assert [tuple(tensor.shape) for tensor in cache.tensors] == [(3, 1, 64, 2, 4), (1, 1, 64, 3, 5)]
    assert [tensor.dtype for tensor in cache.tensors] == [torch.float32, torch.bfloat16]
    uniform = KVCache([(NARROW, NARROW)] * 5)
    uniform.open(100)
    assert [tuple(tensor.shape) for tensor in uniform.tensors] == [(10, 1, 192, 2, 4)]
    assert not any(tensor.any() for tensor in uniform.tensors)


def test_slots_keep_their_tokens_through_moves_and_growth(cache: KVCache) -> None:
    held = {cache.open(10): [] for _ in range(3)}  # type: ignore[var-annotated]
    for seed, slot in enumerate(held):
        held[slot].append(write(cache, slot, 5 + seed, seed))
    first = next(iter(held))
    cache.release(first)
    del held[first]
    assert sorted(cache.row(slot) for slot in held) == [0, 1]
    for seed, slot in enumerate(held):
        held[slot].append(write(cache, slot, 40 * (seed + 1), seed + 10))
    assert cache.stride >= 86
    fresh = cache.open(500)
    assert fresh == first
    held[fresh] = [write(cache, fresh, 3, 20)]
    assert all(holds(cache, slot, parts) for slot, parts in held.items())


def test_growth_is_geometric(cache: KVCache) -> None:
    slot, sizes = cache.open(1), set()
    for seed in range(300):
        write(cache, slot, 7, 2 * seed)
        sizes.add(cache.stride)
    assert cache.length(slot) == 2100
    assert len(sizes) < 12


def test_committing_a_path_gathers_its_entries(cache: KVCache) -> None:
    slots = [cache.open(20) for _ in range(2)]
    prefixes = [write(cache, slot, 4, seed) for seed, slot in enumerate(slots)]
    trees = []
    for seed, slot in enumerate(slots):
        trees.append(write(cache, slot, 6, seed + 4))
        cache.resize(slot, 4)
    sources, targets = cache.advance(slots, [(2, 3, 5), (1, 2)])
    # The second path lies in place already.
    assert len(sources) == len(targets) == 3
    moves = torch.tensor(sources), torch.tensor(targets)
    with torch.inference_mode():
        cache.move(*moves)
    for slot, prefix, tree, path in zip(
        slots, prefixes, trees, ([0, 2, 3, 5], [0, 1, 2]), strict=True
    ):
        kept = [(k[path], v[path]) for k, v in tree]
        assert cache.length(slot) == 4 + len(path)
        assert holds(cache, slot, [prefix, kept])
