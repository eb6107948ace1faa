"""Weights are moved into arrays, bit for bit, unless something else uses their memory."""

import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from draftwood.runner.cpu import aligned
from draftwood.runner.cpu.aligned import LINE, align
from draftwood.runner.cpu.packing import pack


def displaced(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> nn.Parameter:
    """Random numbers that begin 40 bytes behind a cache line, in memory of their own."""
    count = torch.Size(shape).numel()
    memory = bytearray(2 * LINE + count * dtype.itemsize)
    begin = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    found = torch.frombuffer(memory, dtype=dtype, count=count, offset=-begin % LINE + 40)
    return nn.Parameter(found.view(shape).copy_(torch.randn(shape)), requires_grad=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_displaced_weight_is_moved_bit_for_bit(dtype: torch.dtype) -> None:
    weight = displaced((6, 8), dtype)
    before = weight.clone()
    assert weight.data_ptr() % LINE == 40
    assert align([weight, weight]) == weight.nbytes
    assert weight.data_ptr() % LINE == 0
    assert torch.equal(weight, before)


def test_a_weight_that_was_moved_stays() -> None:
    weight = nn.Parameter(torch.randn(6, 8))
    assert align([weight]) == weight.nbytes
    place = weight.data_ptr()
    assert align([weight]) == 0
    assert weight.data_ptr() == place


def test_weights_of_one_shape_lie_in_an_array_together() -> None:
    kinds = [((6, 8), torch.float32), ((5, 3), torch.float32), ((6, 8), torch.bfloat16)]
    weights = [nn.Parameter(torch.randn(*shape).to(dtype), False) for shape, dtype in kinds * 3]
    align(weights)
    for first in range(3):
        size = weights[first].nbytes
        apart = -(-size // LINE) * LINE
        places = [each.data_ptr() for each in weights[first::3]]
        assert places == [places[0] + i * apart for i in range(3)]
        assert {each.untyped_storage().nbytes() for each in weights[first::3]} == {size}


def test_weights_are_moved_in_inference_mode() -> None:
    numbers = torch.arange(48, dtype=torch.uint8)
    before = numbers.clone()
    with torch.inference_mode():
        assert align([numbers]) == 48
    assert torch.equal(numbers, before)
    assert not numbers.is_inference()


def test_large_weights_share_no_array_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "_MOST", 400)
    weights = [nn.Parameter(torch.randn(6, 8), False) for _ in range(5)]
    before = set(aligned._arrays)
    align(weights)
    assert len(set(aligned._arrays) - before) == 3


def test_the_memory_of_weights_is_free_when_all_of_them_are() -> None:
    weights = [nn.Parameter(torch.randn(6, 8), False) for _ in range(2)]
    before = set(aligned._arrays)
    align(weights)
    (array,) = set(aligned._arrays) - before
    del weights[0]
    assert array in aligned._arrays
    del weights[0]
    assert array not in aligned._arrays


class Model:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.own = self


def test_models_may_be_freed_while_others_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the collector runs: it does so as objects are allocated."""
    arrays: dict[int, int] = {}
    monkeypatch.setattr(aligned, "_arrays", arrays)
    before = gc.get_threshold()
    try:
        for allocations in range(1, 120):
            gc.disable()
            arrays.update((i, i) for i in range(60))
            for i in range(30):
                weakref.finalize(Model(), arrays.pop, i).atexit = False
            gc.set_threshold(gc.get_count()[0] + allocations)
            gc.enable()
            align([])
            gc.collect()
            assert len(arrays) == 30
    finally:
        gc.enable()
        gc.set_threshold(*before)


def test_weights_that_share_memory_stay_together() -> None:
    weight = displaced((6, 8))
    other, row = nn.Parameter(weight.data, False), nn.Parameter(weight.data[1:2], False)
    assert align([weight, other]) == 0
    assert align([row]) == 0
    assert align([weight], [weight, row]) == 0
    assert align([weight], [nn.Parameter(weight.data.t(), False)]) == 0
    assert other.data_ptr() == weight.data_ptr()


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
@pytest.mark.parametrize("padding", range(8))
def test_a_mapped_file_is_let_go(padding: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    save_file(model.state_dict(), path, {"padding": "x" * 8 * padding})
    model.load_state_dict(load_file(path), assign=True)
    assert str(path) in Path("/proc/self/maps").read_text()
    pack(model, lambda weights: [None] * len(weights))
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_the_weights_of_a_mapped_file_are_moved_before_they_are_packed(tmp_path: Path) -> None:
    tied = nn.Linear(8, 6, bias=False)
    model = nn.Sequential(nn.Embedding(6, 8), tied)
    state = {"weight": torch.randn(6, 8)}
    for padding in range(8):
        save_file(state, tmp_path / "model.safetensors", {"padding": "x" * 8 * padding})
        mapped: Tensor = load_file(tmp_path / "model.safetensors")["weight"]
        if mapped.data_ptr() % LINE:
            break
    tied.weight = model[0].weight = nn.Parameter(mapped)
    pack(model, lambda weights: [None] * len(weights))
    assert mapped.data_ptr() % LINE
    assert tied.weight.data_ptr() % LINE == 0
    assert tied.weight is model[0].weight
    assert torch.equal(tied.weight, state["weight"])
