"""Norms are replaced where nothing changes, and only there."""

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from draftwood.kernels.compiled import _command
from draftwood.kernels.functions import kernels
from draftwood.runner.cpu import norms
from draftwood.runner.cpu.norms import FusedNorm, fuse_norms
from draftwood.runner.norm_formulas import FORMULAS, Formula
from tests.factories.model_families import FAMILIES


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_the_kernel_logits_are_unchanged_bit_for_bit(
    family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(norms, "kernels", lambda: None)
    model = FAMILIES[family]().to(dtype)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    ids = torch.arange(2, 26).view(2, 12)
    with torch.inference_mode():
        plain = model(input_ids=ids).logits
        fused = fuse_norms(model)
        assert torch.equal(model(input_ids=ids).logits, plain)
    for norm in fused:
        norm.undo()
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.skipif(_command() is None, reason="no C++ compiler")
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
@pytest.mark.parametrize("width", [1, 5, 16, 37, 576])
def test_the_kernel_equals_its_formula(
    formula: Formula, dtype: torch.dtype, allowed: float, width: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    norm = LlamaRMSNorm(width, 1e-5).to(dtype)
    norm.weight.data = torch.randn(width, generator=generator).to(dtype)
    fused = FusedNorm(norm, 1e-5, formula)
    kernel = fused._kernel
    assert kernel is not None
    calls = 0

    def counted(*given: object) -> None:
        nonlocal calls
        calls += 1
        kernel(*given)

    fused._kernel = counted
    with torch.inference_mode():
        for rows, scale in ((1, 1e-4), (3, 1.0), (7, 1e3)):
            x = (torch.randn(2, rows, width, generator=generator) * scale).to(dtype)
            found, expected = fused(x), formula(x, norm.weight, 1e-5)
            torch.testing.assert_close(found, expected, rtol=allowed, atol=allowed * 1e-3)
            turned = fused(x.transpose(0, 1))
            assert torch.equal(turned, found.transpose(0, 1))
            assert torch.equal(fused(x[:, :1]), found[:, :1])
    assert calls == 9, "the formula is not compared with itself"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_norm_of_a_llama_is_found(dtype: torch.dtype) -> None:
    model = FAMILIES["llama"]().to(dtype)
    # Only the kernel rounds as Llama does.
    assert len(fuse_norms(model)) == (5 if dtype is torch.float32 or kernels() else 0)
    assert len(fuse_norms(FAMILIES["gpt2"]())) == 0


class _Offset(nn.Module):
    """Gemma's norm: the weight is an offset from one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(8)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, (8,), 1 + self.weight, self.eps)


class _TwoInputs(_Offset):
    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x * gate)


@pytest.mark.parametrize("module", [_Offset(), _TwoInputs(), nn.LayerNorm(8), nn.RMSNorm(8)])
def test_other_norms_are_left_alone(module: nn.Module) -> None:
    assert len(fuse_norms(nn.Sequential(module))) == 0


def test_gradients_and_copies_use_the_plain_forward() -> None:
    model = FAMILIES["llama"]()
    fuse_norms(model)
    model.model.norm(torch.ones(1, 2, 32)).sum().backward()
    assert model.model.norm.weight.grad is not None
    for twin in (copy.deepcopy(model.model.norm), pickle.loads(pickle.dumps(model.model.norm))):
        with torch.no_grad():
            twin.weight.zero_()
            assert not twin(torch.ones(1, 2, 32)).any()
            assert model.model.norm(torch.ones(1, 2, 32)).any()
