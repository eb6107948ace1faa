"""The self-test fails for everything that would make trees silently wrong."""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetOutput
from draftwood.runner import attention
from draftwood.runner.attach import attach
from draftwood.runner.prefill import ChunkedPrefill
from draftwood.runner.selftest import has_experts, tolerance
from tests.factories.model_families import FAMILIES

OF_PATHS = "nodes do not get the logits of their paths"
OF_PROMPTS = "the logits after a prompt are not the model's own"


def refused(model: Any, reason: str) -> None:
    implementation = model.config._attn_implementation
    with pytest.raises(DraftwoodError, match=reason):
        attach(model, packing=False)
    assert model.config._attn_implementation == implementation


def test_a_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "draftwood.runner.masks.ancestors",
        lambda parents: np.tri(len(parents), dtype=np.uint8),
    )
    refused(FAMILIES["llama"](), OF_PATHS)


def test_biases_by_cache_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """ALiBi as its models compute it: a query's distance to a key is counted in slots."""

    def biased(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        scaling: float | None,
        step: attention.Visibility | attention.Varlen | None,
    ) -> torch.Tensor:
        if isinstance(step, attention.Varlen):
            return attention._by_sequence(biased, query, key, value, mask, scaling, step)
        g, q, kv = query.shape[1] // key.shape[1], query.shape[2], key.shape[2]
        slope = torch.arange(kv - q, kv)[:, None] - torch.arange(kv)
        bias = torch.where(slope < 0, -torch.inf, -0.5 * slope)
        if mask is not None and step is attention.Visibility.TREE:
            bias = -0.5 * slope.abs() + mask[:, :, :q]
        output = nn.functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(g, 1),
            value.repeat_interleave(g, 1),
            attn_mask=bias.to(query.dtype),
            scale=scaling,
        )
        return output.transpose(1, 2).contiguous()

    # The plain model and our steps agree with each other: both count slots.
    monkeypatch.setattr(attention, "fused_attention", biased)
    monkeypatch.setattr(
        attention,
        "ALL_ATTENTION_FUNCTIONS",
        {
            "sdpa": lambda module, query, key, value, mask, scaling, dropout, **rest: (
                biased(query, key, value, None, scaling, None),
                None,
            )
        },
    )
    model = FAMILIES["llama"]()
    model.set_attn_implementation(attention.register("sdpa"))
    monkeypatch.setattr("draftwood.runner.attach.PREFIX", "another_")
    monkeypatch.setattr("draftwood.runner.attach.register", lambda name: name)
    refused(model, OF_PATHS)


class _SharedScale(nn.Module):
    """A linear quantised to int8 with ONE activation scale for all rows it is given."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().max() / 127
        return nn.functional.linear((x / scale).round() * scale, self.weight, self.bias)


def test_attention_without_the_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attention._unfused
    monkeypatch.setattr(attention, "_unfused", lambda *given: whole(*given[:-1]))
    refused(FAMILIES["gpt_oss"](), "self-test failed")


def test_rows_that_depend_on_other_rows() -> None:
    model = FAMILIES["llama"]()
    for layer in model.model.layers:
        layer.mlp.up_proj = _SharedScale(layer.mlp.up_proj)
    refused(model, "self-test failed")


class _SharedMean(nn.Module):
    """A linear whose rows have a small part in common."""

    def __init__(self, linear: nn.Linear, share: float) -> None:
        super().__init__()
        self.weight, self.bias, self.share = linear.weight, linear.bias, share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = x + self.share * x.mean(dim=-2, keepdim=True)
        return nn.functional.linear(mixed, self.weight, self.bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_models_own_noise_is_not_allowed_between_nodes(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.runner.selftest._noise", lambda *_: 0.1)
    narrow = dtype is torch.bfloat16
    model = FAMILIES["llama"]().to(dtype)
    model.model.layers[1].mlp.up_proj = _SharedMean(
        model.model.layers[1].mlp.up_proj, 0.02 if narrow else 1e-4
    )
    refused(model, r"a node's logits depend on nodes beside it .*allowed [25]e-0[46]")


def test_kernels_that_add_in_another_order_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = FAMILIES["llama"]().bfloat16(), count(1)
    own = model.lm_head.forward
    monkeypatch.setattr(model.lm_head, "forward", lambda x: own(x) * (1 + next(calls) % 7 * 4e-3))
    attach(model, packing=False).detach()


@pytest.mark.parametrize(("family", "routed"), [("llama", False), ("gpt_oss", True)])
def test_models_with_experts_are_recognised(family: str, routed: bool) -> None:
    assert has_experts(FAMILIES[family]()) == routed


def test_entries_moved_to_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftwood.runner.cache.KVCache.move", lambda *_: None)
    refused(FAMILIES["llama"](), "the logits after an accepted path are not those of its text")


def test_attention_without_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftwood.runner.masks.LayerKind.reach", float("inf"))
    model = FAMILIES["mistral_sliding"]()
    model.config.sliding_window = 4
    refused(model, "self-test failed")


def test_the_end_of_a_short_window_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "draftwood.runner.masks.LayerKind.hidden", lambda _, queries, keys: keys + 0 * queries < -1
    )
    refused(FAMILIES["mistral_sliding"](), "self-test failed")


@pytest.mark.parametrize(("precision", "allowed"), [("none", 2e-4), ("ieee", 2e-4), ("tf32", 1e-2)])
def test_shorter_products_on_a_gpu_are_allowed_for(precision: str, allowed: float) -> None:
    """Also if it was asked for with the newer of torch's two settings, which exclude each other."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = precision
    try:
        assert tolerance(torch.float32, torch.device("cuda")) == allowed
        assert tolerance(torch.float32, torch.device("cpu")) == 2e-4
    finally:
        settings.fp32_precision = before


def noisy(monkeypatch: pytest.MonkeyPatch, share: float) -> Any:
    """A model in bfloat16 whose logits are other ones with a cache, by a share of the largest."""
    model = FAMILIES["llama"]().bfloat16()
    own = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = own(*args, **kwargs)
        if kwargs.get("past_key_values") is not None:
            output.logits = output.logits + share * output.logits.abs().max()
        return output

    monkeypatch.setattr(model, "forward", forward)
    return model


def test_a_models_own_noise_is_allowed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not any noise: a model that is another one with a cache is no noise."""
    attach(noisy(monkeypatch, 0.08), packing=False).detach()
    refused(noisy(monkeypatch, 0.5), OF_PROMPTS)
    monkeypatch.setattr("draftwood.runner.selftest._noise", lambda *_: 0.0)
    refused(noisy(monkeypatch, 0.08), OF_PROMPTS)


def test_the_rows_after_prompts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ChunkedPrefill.run

    def first_rows(*given: Any) -> list[TargetOutput]:
        outputs = run(*given)
        return [replace(each, logits=outputs[0].logits) for each in outputs]

    monkeypatch.setattr(ChunkedPrefill, "run", first_rows)
    refused(FAMILIES["llama"](), OF_PROMPTS)
