"""Autocast to another dtype than the model's is refused."""

from typing import Any

import pytest
import torch

import draftwood
from draftwood import DraftwoodError, Engine, Request
from draftwood.runner import attach
from draftwood.runner.cpu.layouts import LayoutChoice, layouts
from tests.factories.tiny_llama import tiny_llama

IDS = torch.tensor([[5, 17, 44, 5, 17, 30]])


def decoded(model: Any) -> list[int]:
    [done] = Engine(model, "goose").generate([Request(IDS[0].tolist(), 4)])
    return [*done.checked().tokens]


def test_it_is_refused_when_a_model_is_attached_and_when_it_decodes() -> None:
    model = tiny_llama()
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(DraftwoodError, match="leave autocas"),
    ):
        draftwood.attach(model)
    expected = decoded(model)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(DraftwoodError, match="leave autocas"),
    ):
        decoded(model)
    assert decoded(model) == expected


def test_autocast_to_the_models_own_dtype_changes_nothing() -> None:
    model: Any = tiny_llama()
    model.to(torch.bfloat16)
    expected = decoded(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert decoded(model) == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("layout", [*(layout.name for layout in layouts()), "int8"])
def test_the_models_own_forward_is_cast_as_before(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = tiny_llama()
    if layout == "int8":
        torchao = pytest.importorskip("torchao.quantization")
        torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    chosen = [LayoutChoice(each) for each in layouts() if each.name == layout]
    monkeypatch.setattr(attach, "cached_layouts", lambda weights, **_: chosen * len(weights))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = model(IDS).logits
    draftwood.attach(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = model(IDS).logits
    # torchao's product has the dtype of its input.
    cast = torch.float32 if layout == "int8" else torch.bfloat16
    assert found.dtype is expected.dtype is cast
    assert torch.equal(found, expected)
    draftwood.detach(model)


def test_a_forward_wrapped_by_accelerate_is_refused() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
    model: Any = accelerator.prepare(tiny_llama())
    with pytest.raises(DraftwoodError, match=r"accelerate runs this \w+ in mixed precision"):
        draftwood.attach(accelerator.unwrap_model(model).eval())
    plain = accelerator.unwrap_model(model, keep_fp32_wrapper=False).eval()
    assert decoded(plain) == decoded(tiny_llama())
