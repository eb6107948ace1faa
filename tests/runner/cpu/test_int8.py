"""Linears that torchao quantised to int8: the kernel's product, its use, and whole models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from draftwood import Engine, Request
from draftwood.errors import DraftwoodError
from draftwood.kernels.compiled import _command
from draftwood.runner.attach import attach
from draftwood.runner.cpu.int8 import Int8Linear, int8_weight, patch_int8
from draftwood.runner.cpu.rows import RowsLinear
from draftwood.runner.quantised import row_mixing
from tests.factories.tiny_llama import tiny_llama
from tests.runner.cpu.test_rows import ALLOWED, drawn

pytestmark = [
    pytest.mark.skipif(_command() is None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def quantised(module: nn.Module, *, activations: bool = False) -> nn.Module:
    torchao = pytest.importorskip("torchao.quantization")
    config = (
        torchao.Int8DynamicActivationInt8WeightConfig
        if activations
        else torchao.Int8WeightOnlyConfig
    )
    torchao.quantize_(module, config())
    return module


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("inputs", [1, 7, 37, 64, 100, 576])
@pytest.mark.parametrize("outputs", [1, 5, 33, 192])
@pytest.mark.parametrize("biased", [False, True])
def test_every_row_is_that_of_a_wider_product(
    dtype: torch.dtype, inputs: int, outputs: int, biased: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(-128, 128, (outputs, inputs), generator=generator, dtype=torch.int8)
    scales = drawn(outputs, seed=3).abs() / 100
    bias = drawn(outputs, dtype=dtype, seed=1) if biased else None
    x = drawn(19, inputs, dtype=dtype, seed=2)
    linear = RowsLinear(numbers, scales, dtype)
    whole = linear.product(x, bias)
    assert whole is not None
    assert whole.dtype is dtype
    weight = numbers.double() * scales.double()[:, None]
    added = torch.zeros(outputs).double() if bias is None else bias.double()
    exact = x.double() @ weight.T + added
    size = x.double().abs() @ weight.abs().T + added.abs()
    assert ((whole.double() - exact).abs() <= ALLOWED[dtype] * size).all()
    for first, end in [(0, 1), *((0, n) for n in range(2, 19)), (3, 4), (5, 12)]:
        found = linear.product(x[first:end], bias)
        assert found is not None
        assert torch.equal(found, whole[first:end])


@pytest.mark.parametrize("dtype", ALLOWED)
def test_a_quantised_linear_computes_what_torchao_does(dtype: torch.dtype) -> None:
    model: Any = quantised(nn.Sequential(nn.Linear(96, 40)).to(dtype))
    linear, x = model[0], drawn(5, 96, dtype=dtype)
    with torch.no_grad():
        expected = linear(x)
        [patched] = patch_int8(model)
        found = linear(x)
    torch.testing.assert_close(
        found, expected, rtol=0, atol=0.02 if dtype is torch.bfloat16 else 1e-5
    )
    assert linear.forward is patched
    patched.undo()
    assert "forward" not in linear.__dict__


def test_the_kernel_is_used_for_few_rows_of_the_weight_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = quantised(nn.Sequential(nn.Linear(32, 32)))
    [patched] = patch_int8(model)
    own: list[int] = []
    forward = nn.Linear.forward

    def watched(self: nn.Linear, x: Tensor) -> Tensor:
        own.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(nn.Linear, "forward", watched)
    with torch.no_grad():
        model(drawn(63, 32))
        assert not own
        model(drawn(64, 32))
    model(drawn(3, 32))  # with gradients
    assert own == [64, 3]
    other: Any = quantised(nn.Sequential(nn.Linear(32, 32)))
    model[0].weight = other[0].weight
    with torch.no_grad():
        expected = forward(other[0], drawn(3, 32))
        torch.testing.assert_close(
            model[0].forward(drawn(3, 32)) - model[0].bias, expected - other[0].bias
        )
        assert own == [64, 3, 3]
        patched.refresh()
        torch.testing.assert_close(
            model[0].forward(drawn(3, 32)) - model[0].bias, expected - other[0].bias
        )
    assert own == [64, 3, 3]


def shared(weight: Any) -> None:
    """Move a weight as sending it to another process does: the old memory is free then."""
    weight.qdata.share_memory_()
    weight.scale.share_memory_()


def swapped(weight: Any) -> None:
    """Put other tensors into the same parameter."""
    other: Any = quantised(nn.Sequential(nn.Linear(weight.shape[1], weight.shape[0])))
    taken = other[0]._parameters.pop("weight")
    torch.utils.swap_tensors(weight, taken)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("move", [shared, swapped])
def test_a_weight_that_moves_within_its_parameter_is_read_where_it_is(
    move: Callable[[Any], None],
) -> None:
    model: Any = quantised(nn.Sequential(nn.Linear(32, 32)))
    [patched] = patch_int8(model)
    linear, x = model[0], drawn(3, 32)
    with torch.no_grad():
        linear(x)
        move(linear.weight)
        linear.weight.qdata.neg_()
        expected = nn.Linear.forward(linear, x)
        torch.testing.assert_close(linear(x), expected)
        patched.refresh()
        found = patched._linear.product(x, linear.bias)
        torch.testing.assert_close(found, expected)


def test_a_weight_that_is_quantised_no_more_is_read_by_its_own_forward() -> None:
    model: Any = quantised(nn.Sequential(nn.Linear(32, 32)))
    [patched] = patch_int8(model)
    linear, x = model[0], drawn(3, 32)
    linear.weight = nn.Parameter(drawn(32, 32))
    with torch.no_grad():
        patched.refresh()
        assert torch.equal(linear(x), nn.Linear.forward(linear, x))


def test_scales_that_are_changed_in_place_are_read_again_into_the_same_memory() -> None:
    """Those in bfloat16 are copied, and fused layers have the copy's address."""
    model: Any = quantised(nn.Sequential(nn.Linear(32, 32)).to(torch.bfloat16))
    [patched] = patch_int8(model)
    linear, x = model[0], drawn(3, 32, dtype=torch.bfloat16)
    place = patched.weight.scales.data_ptr()
    with torch.no_grad():
        linear.weight.scale.mul_(2)
        expected = nn.Linear.forward(linear, x)
        torch.testing.assert_close(linear(x), expected)
        patched.refresh()
        found = patched._linear.product(x, linear.bias)
        torch.testing.assert_close(found, expected, rtol=0, atol=0.02)
    assert patched.weight.scales.data_ptr() == place


def test_other_weights_are_left_alone() -> None:
    assert int8_weight(nn.Linear(8, 8).weight) is None
    assert patch_int8(quantised(nn.Sequential(nn.Linear(32, 32)), activations=True)) == []


@pytest.mark.parametrize("dtype", ALLOWED)
def test_layers_of_a_quantised_model_are_fused(dtype: torch.dtype) -> None:
    plain: Any = tiny_llama()
    model: Any = quantised(plain.to(dtype))
    runner = attach(model)
    assert "int8" in runner.info.layouts
    assert len(runner._forward_pass._fused_layers) == model.config.num_hidden_layers
    runner.detach()


def test_a_quantised_model_decodes_as_it_does_plainly() -> None:
    model: Any = quantised(tiny_llama())
    runner = attach(model)
    request = [Request([5, 6, 7, 5, 6, 7, 5, 6], max_new_tokens=40)]
    found = [Engine(runner, name).generate(request)[0].tokens for name in ("ar", "goose:budget=16")]
    assert found[0] == found[1]
    assert len(set(found[0])) > 3
    assert isinstance(model.model.layers[0].mlp.up_proj.forward, Int8Linear)
    # A replaced weight is noticed, and the layer's own forward runs.
    layer = model.model.layers[0]
    layer.mlp.up_proj.weight = layer.mlp.gate_proj.weight
    changed = Engine(runner, "goose:budget=16").generate(request)[0].tokens
    runner.detach()
    plain = attach(model, packing=False)
    assert Engine(plain, "ar").generate(request)[0].tokens == changed
    plain.detach()


@pytest.mark.parametrize("move", [shared, swapped])
def test_a_model_whose_weights_move_within_their_parameters_decodes_as_it_does_plainly(
    move: Callable[[Any], None],
) -> None:
    model: Any = quantised(tiny_llama())
    runner = attach(model)
    request = [Request([5, 6, 7, 5, 6, 7, 5, 6], max_new_tokens=20)]
    before = Engine(runner, "ar").generate(request)[0].tokens
    for layer in model.model.layers:
        move(layer.mlp.up_proj.weight)
        layer.mlp.up_proj.weight.qdata.neg_()
    found = Engine(runner, "ar").generate(request)[0].tokens
    assert runner._forward_pass._fused_layers.direct, "by the kernels again"
    runner.detach()
    plain = attach(model, packing=False)
    assert Engine(plain, "ar").generate(request)[0].tokens == found != before
    plain.detach()


def test_a_weight_whose_inputs_are_scaled_first_is_left_alone() -> None:
    model: Any = quantised(nn.Sequential(nn.Linear(32, 32)))
    model[0].weight.act_pre_scale = torch.full((32,), 2.0)
    assert int8_weight(model[0].weight) is None
    assert patch_int8(model) == []


@pytest.mark.parametrize("together", [False, True])
def test_one_scale_for_all_activations_of_a_forward_is_refused(together: bool) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    scales = torchao.PerTensor() if together else torchao.PerRow()
    plain: Any = tiny_llama()
    model: Any = plain.to(torch.bfloat16)
    torchao.quantize_(model, torchao.Int8DynamicActivationInt8WeightConfig(granularity=scales))
    if together:
        with pytest.raises(DraftwoodError, match=r"quantise with granularity=PerRow\(\)"):
            attach(model)
    else:
        attach(model).detach()


@pytest.mark.parametrize("together", [False, True])
def test_activations_of_nvfp4_may_have_one_scale_as_well(together: bool) -> None:
    tensors = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    linear: Any = nn.Linear(16, 16)
    given = tensors.QuantizeTensorToNVFP4Kwargs(use_dynamic_per_tensor_scale=together)
    linear.weight.act_quant_kwargs = given
    assert ("use_dynamic_per_tensor_scale=False" in (row_mixing(linear) or "")) == together
