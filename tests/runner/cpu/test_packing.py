"""Packed linears compute the same, leave the model's face alone, and come off without a trace."""

import copy
import pickle
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from draftwood.runner.cpu import layouts as layouts_module
from draftwood.runner.cpu.layouts import (
    BLOCKED,
    TRANSPOSED,
    LayoutChoice,
    Linear,
    Weight,
    WeightLayout,
    best_layout,
    fastest_layouts,
    layouts,
    timing_sample,
    up_to_prompts,
)
from draftwood.runner.cpu.packing import Chooser, PackedLinear, pack
from tests.factories.model_families import FAMILIES

LAYOUTS = layouts()[1:]
IN_EACH_DTYPE = [
    pytest.param(layout, dtype, id=f"{layout.name}-{dtype}")
    for dtype in (torch.float32, torch.bfloat16)
    for layout in layouts([(torch.empty(1, 1, dtype=dtype), None)])[1:]
]


def always(layout: WeightLayout, low: int = 0, high: int = 1 << 40) -> Chooser:
    return lambda weights: [LayoutChoice(layout, low, high)] * len(weights)


def never(weights: Sequence[Weight]) -> list[LayoutChoice | None]:
    return [None] * len(weights)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(before: dict[str, torch.Tensor], model: nn.Module) -> bool:
    after = model.state_dict()
    return before.keys() == after.keys() and all(
        torch.equal(value, after[name]) for name, value in before.items()
    )


@pytest.fixture
def model() -> Any:
    return FAMILIES["qwen2"]()


def freed(linear: nn.Linear) -> bool:
    """Whether the module holds no plain weight; asks past the module, whose answer would bring it
    back."""
    weight = dict.__getitem__(linear._parameters, "weight")
    assert weight is not None
    return bool(weight.untyped_storage().nbytes() == weight.element_size())


def one(layout: WeightLayout = TRANSPOSED) -> tuple[nn.Linear, PackedLinear]:
    """A packed linear of 32 x 8 without a bias, without other references."""
    linear = nn.Linear(8, 32, bias=False)
    [packed] = pack(nn.Sequential(linear), always(layout))
    return linear, packed


@pytest.mark.parametrize(("layout", "dtype"), IN_EACH_DTYPE)
@pytest.mark.parametrize("shared", [False, True])
def test_the_same_logits_with_and_without(
    model: Any, layout: WeightLayout, dtype: torch.dtype, shared: bool
) -> None:
    model.to(dtype)
    held = list(model.parameters()) if shared else []
    ids = torch.arange(2, 26).view(2, 12)
    with torch.inference_mode():
        plain = model(input_ids=ids).logits
        before = state(model)
        packed = pack(model, always(layout))
        # Seven linears in each of two layers, and the lm_head.
        assert len(packed) == 15
        linears = [module for module in model.modules() if type(module) is nn.Linear]
        moved = [
            not shared and not layout.stored and layout.fits(torch.empty(each.shape, dtype=dtype))
            for each in packed
        ]
        assert any(moved) is not (shared or layout.stored)
        assert [freed(linear) for linear in linears] == moved
        found = model(input_ids=ids).logits
        assert [freed(linear) for linear in linears] == moved
    tolerance = 1e-4 if dtype is torch.float32 else 0.1
    torch.testing.assert_close(found, plain, rtol=0, atol=tolerance)
    assert same(before, model)
    for linear in packed:
        linear.undo()
    assert same(before, model)
    with torch.inference_mode():
        assert torch.equal(model(input_ids=ids).logits, plain)
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert all(type(module._parameters) is dict for module in model.modules())
    del held


READERS: dict[str, Callable[[nn.Linear], Any]] = {
    "attribute": lambda linear: linear.weight,
    "parameters": lambda linear: next(linear.parameters()),
    "named_parameters": lambda linear: dict(linear.named_parameters())["weight"],
    "state_dict": lambda linear: linear.state_dict()["weight"],
    "get_parameter": lambda linear: linear.get_parameter("weight"),
    "dict": lambda linear: dict(linear._parameters)["weight"],
    "unpacked": lambda linear: {**linear._parameters}["weight"],
    "copy": lambda linear: linear._parameters.copy()["weight"],
    "get": lambda linear: linear._parameters.get("weight"),
    "values": lambda linear: next(iter(linear._parameters.values())),
    "pop": lambda linear: linear._parameters.pop("weight"),
    "deepcopy": lambda linear: copy.deepcopy(linear).weight,
    "pickle": lambda linear: pickle.loads(pickle.dumps(linear)).weight,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("reader", READERS)
def test_reading_a_weight_restores_it(layout: WeightLayout, reader: str) -> None:
    torch.manual_seed(0)
    wanted = nn.Linear(8, 32, bias=False).weight.detach().clone()
    torch.manual_seed(0)
    linear, packed = one(layout)
    assert freed(linear) is not layout.stored
    with torch.inference_mode():
        found = READERS[reader](linear)
    assert torch.equal(found, wanted)
    if reader != "pop":
        assert not linear.weight.is_inference()
    if reader == "pop":
        linear._parameters["weight"] = found
    packed.undo()
    assert torch.equal(linear.weight, wanted)


CHANGES: dict[str, Callable[[nn.Linear], object]] = {
    "in place": torch.no_grad()(lambda linear: linear.weight.mul_(2)),
    "replaced": lambda linear: setattr(linear, "weight", nn.Parameter(linear.weight.detach() * 2)),
    "data": lambda linear: setattr(linear.weight, "data", linear.weight.data * 2),
    "data in place": lambda linear: linear.weight.data.mul_(2),
    "loaded": lambda linear: linear.load_state_dict({"weight": linear.weight.detach() * 2}),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize(
    ("change", "shared"),
    [*((c, False) for c in CHANGES), *((c, True) for c in list(CHANGES)[:3])],
)
def test_a_changed_weight_is_used_and_packed_again(
    change: str, shared: bool, layout: WeightLayout
) -> None:
    """Also if the weight has other references (``shared``), as an optimizer does."""
    linear = nn.Linear(8, 32, bias=False)
    held = [linear.weight] if shared else []
    [packed] = pack(nn.Sequential(linear), always(layout))
    x = torch.ones(1, 3, 8)
    with torch.inference_mode():
        before = linear(x)
    CHANGES[change](linear)
    for _ in range(2):
        with torch.inference_mode():
            torch.testing.assert_close(linear(x), 2 * before)
        packed.refresh()
        assert shared or freed(linear) is not layout.stored
    del held


def test_an_optimizer_made_before_or_after_trains_the_model() -> None:
    for first in (True, False):
        linear = nn.Linear(8, 6, bias=False)
        made = [torch.optim.SGD(linear.parameters(), lr=0.1)] if first else []
        [packed] = pack(nn.Sequential(linear), always(TRANSPOSED))
        (optimizer,) = made or [torch.optim.SGD(linear.parameters(), lr=0.1)]
        x = torch.ones(1, 3, 8)
        for _ in range(3):
            packed.refresh()
            with torch.inference_mode():
                before = linear(x)
            optimizer.zero_grad()
            linear(x).sum().backward()
            optimizer.step()
            with torch.inference_mode():
                # Every weight's gradient is 3, so every output falls by 8 x 0.3.
                torch.testing.assert_close(linear(x), before - 2.4)


def test_a_weight_of_two_modules_is_copied() -> None:
    model = FAMILIES["llama"]()
    model.lm_head.weight = model.model.embed_tokens.weight
    pack(model, always(TRANSPOSED))
    assert freed(model.model.layers[0].mlp.up_proj)
    assert not freed(model.lm_head)


def test_a_weight_that_is_read_often_is_copied_instead_of_moved() -> None:
    linear, packed = one()
    for _ in range(3):
        assert freed(linear)
        assert linear.weight.shape == (32, 8)
        assert not freed(linear)
        packed.refresh()
    assert not freed(linear)


BIASES: dict[str, Callable[[nn.Linear], object]] = {
    "in place": torch.no_grad()(lambda linear: linear.bias.fill_(5)),
    "replaced": lambda linear: setattr(linear, "bias", nn.Parameter(torch.full((6,), 5.0))),
    "data": lambda linear: setattr(linear.bias, "data", torch.full((6,), 5.0)),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("change", BIASES)
def test_a_changed_bias_is_used(change: str, layout: WeightLayout) -> None:
    linear = nn.Linear(8, 6)
    held = linear.weight  # so that reading it restores nothing
    [packed] = pack(nn.Sequential(linear), always(layout))
    x = torch.ones(1, 3, 8)
    with torch.inference_mode():
        before = linear(x) - linear.bias
    BIASES[change](linear)
    for _ in range(2):
        with torch.inference_mode():
            torch.testing.assert_close(linear(x), before + 5)
        packed.refresh()
    linear.bias = None  # type: ignore[assignment]
    with torch.inference_mode():
        torch.testing.assert_close(linear(x), before)
    del held


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_restored_weight_leaves_no_packed_one_behind(layout: WeightLayout) -> None:
    _, packed = one(layout)
    assert packed._packed is not None
    weight = weakref.ref(packed._packed.weight)
    packed.undo()
    assert weight() is None


def test_a_weight_that_can_no_longer_be_packed_uses_the_plain_forward() -> None:
    linear, packed = one()
    linear.double()
    packed.refresh()
    with torch.inference_mode():
        assert linear(torch.ones(1, 3, 8).double()).dtype is torch.float64


def test_gradients_flow_past_the_packing() -> None:
    linear, _ = one()
    linear(torch.ones(2, 8)).sum().backward()
    assert linear.weight.grad is not None


def test_copies_and_pickles_are_plain(model: Any) -> None:
    pack(model, always(TRANSPOSED))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(type(module._parameters) is dict for module in twin.modules())
        with torch.no_grad():
            twin.lm_head.weight.zero_()
        with torch.inference_mode():
            ids = torch.arange(2, 9)[None]
            assert not twin(input_ids=ids).logits.any()
            assert model(input_ids=ids).logits.any()


def test_only_faster_row_counts_use_the_layout() -> None:
    used: list[int] = []

    def noting(weight: torch.Tensor) -> Linear:
        def linear(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            used.append(x.numel() // x.shape[-1])
            return torch.nn.functional.linear(x, weight, bias)

        return linear

    noted = WeightLayout("noted", TRANSPOSED.pack, TRANSPOSED.unpack, noting)
    linear = nn.Linear(8, 6)
    held = linear.weight  # so that the plain weight stays, and may be used
    pack(nn.Sequential(linear), always(noted, 4, 16))
    with torch.inference_mode():
        for n in (1, 3, 4, 15, 16, 300):
            linear(torch.ones(1, n, 8))
    assert used == [4, 15]
    del held


def test_other_modules_are_not_patched() -> None:
    class Special(nn.Linear):
        pass

    adapter = nn.Module()
    adapter.base_layer = nn.Linear(4, 4)
    held = nn.Sequential(Special(4, 4), nn.Linear(4, 4).double(), adapter)
    assert len(pack(held, always(TRANSPOSED))) == 0
    assert len(pack(nn.Sequential(nn.Linear(4, 4)), never)) == 0


def test_the_timed_choice_is_a_known_layout() -> None:
    weights: list[Weight] = [(torch.randn(64, 64), None), (torch.randn(32, 64), torch.ones(32))]
    found = fastest_layouts([*weights, weights[0]])
    assert len(found) == 3
    assert found[0] is found[2]
    for choice in found:
        assert choice is None or (choice.layout in LAYOUTS and 1 <= choice.low < choice.high)


@pytest.mark.skipif(BLOCKED not in LAYOUTS, reason="needs oneDNN")
def test_a_layout_that_the_processor_lacks_for_a_dtype_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def block(weight: torch.Tensor) -> torch.Tensor:
        if weight.dtype is torch.bfloat16:
            raise RuntimeError("bf16 path needs the cpu support avx512bw")
        return BLOCKED.pack(weight)

    blocked = replace(BLOCKED, pack=block)
    monkeypatch.setattr(layouts_module, "_block", block)
    monkeypatch.setattr(layouts_module, "BLOCKED", blocked)
    single: list[Weight] = [(torch.ones(4, 4), None)]
    half: list[Weight] = [(torch.ones(4, 4, dtype=torch.bfloat16), None)]
    assert blocked in layouts(single)
    assert blocked not in layouts(half)
    assert blocked not in layouts(single + half)
    assert len(fastest_layouts(half)) == 1
    with pytest.raises(RuntimeError, match="cpu support"):
        blocked.pack(half[0][0])


@pytest.mark.parametrize(
    ("transposed", "blocked", "expected"),
    [
        ((1, 1, 1, 1, 1, 1), (0.9, 0.9, 0.9, 0.9, 0.9, 0.9), LayoutChoice(BLOCKED, 1)),
        ((1, 1, 1, 1, 1, 1), (1.2, 0.9, 0.9, 1.2, 0.9, 0.99), LayoutChoice(BLOCKED, 2, 8)),
        # One bucket that was slow by accident does not part those around it.
        ((1, 1, 1, 1, 1, 1), (0.7, 0.7, 1.05, 0.7, 0.7, 1.3), LayoutChoice(BLOCKED, 1, 64)),
        # The layout that saves most, and none if each hardly saves.
        ((0.5, 1, 1, 1, 1, 1), (1.1, 0.8, 0.8, 0.8, 1, 1), LayoutChoice(BLOCKED, 2, 16)),
        ((1, 0.97, 0.99, 1, 1, 1.1), (1, 1, 1, 1, 1, 1), None),
    ],
)
def test_the_layout_with_the_largest_total_saving_is_chosen(
    transposed: tuple[float, ...], blocked: tuple[float, ...], expected: LayoutChoice | None
) -> None:
    assert best_layout({TRANSPOSED: transposed, BLOCKED: blocked}) == expected


@pytest.mark.parametrize(
    ("given", "at_prompts", "high"),
    [
        (LayoutChoice(BLOCKED, 1), (0.8, 0.8, 0.8, 0.9, 0.99), 1 << 40),
        (LayoutChoice(BLOCKED, 1), (0.8, 0.8, 1.1, 0.8, 1.1), 192),
        (LayoutChoice(BLOCKED, 1), (1.0, 0.8, 0.8, 0.8, 0.8), 96),
        (LayoutChoice(BLOCKED, 1, 64), (0.8, 0.8, 0.8, 0.8, 0.8), 64),
    ],
)
def test_a_layout_serves_prompts_up_to_the_rows_at_which_it_is_slower(
    given: LayoutChoice, at_prompts: tuple[float, ...], high: int
) -> None:
    ratios = {TRANSPOSED: (2.0,) * 5, BLOCKED: at_prompts}
    assert up_to_prompts(given, ratios) == replace(given, high=high)
    assert up_to_prompts(None, ratios) is None


def test_the_timing_sample_exceeds_the_cache_and_has_every_shape() -> None:
    large, small = torch.empty(1 << 12, 1 << 12), torch.empty(2, 2)
    weights: list[Weight] = [(large, None), (large, None), (small, None), (small, None)]
    assert [w is large for w, _ in timing_sample(weights)] == [True, False]
    assert len(timing_sample(weights[2:] * 100)) == 200
