"""An attachment leaves the model itself, comes off without a trace, and refuses what it must."""

import copy
import logging
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.attach import attach, detach, runner_of
from tests.factories.model_families import CONTEXT, FAMILIES, VOCAB
from tests.factories.path_logits import (
    TOLERANCE,
    greedy_tokens,
    path_logits,
    plain_logits,
    random_tree,
    worst,
)

IDS = torch.tensor([[5, 17, 44, 5, 17, 30]])


def generated(model: Any) -> list[int]:
    return greedy_tokens(model, IDS, 10)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("packing", [True, False])
def test_the_model_is_not_changed(implementation: str, packing: bool) -> None:
    model = FAMILIES["llama"]()
    model.set_attn_implementation(implementation)
    before = generated(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    logits = plain_logits(model, IDS[0].tolist())
    runner = attach(model, packing=packing)
    slot = runner.open(20)
    rows = runner.prefill([slot], [IDS[0].tolist()], Needs())[0]
    assert worst(rows, logits[-1:]) < TOLERANCE
    assert generated(model) == before
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    runner.detach()
    runner.detach()
    assert model.config._attn_implementation == implementation
    assert torch.equal(plain_logits(model, IDS[0].tolist()), logits)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert generated(model) == before
    with pytest.raises(DraftwoodError, match="was detached"):
        runner.open(4)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_passes_the_self_test_and_generates_as_before(family: str) -> None:
    model = FAMILIES[family]()
    before = generated(model)
    runner = attach(model)
    assert generated(model) == before
    info = runner.info
    assert (info.vocab_size, info.context_limit) == (VOCAB, CONTEXT)
    assert (info.dtype, info.device.type) == (torch.float32, "cpu")
    assert (info.layers, info.hidden_size) == (model.config.num_hidden_layers, 32)
    runner.detach()
    assert generated(model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_pass_the_self_test(dtype: torch.dtype) -> None:
    runner = attach(FAMILIES["llama"]().to(dtype))
    assert runner.info.dtype is dtype
    runner.detach()


# PEFT still reads an attribute that transformers renamed.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_part_of_the_model() -> None:
    peft = pytest.importorskip("peft")
    base = FAMILIES["llama"]()
    alone = plain_logits(base, IDS[0].tolist())
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    model = peft.get_peft_model(base, config).eval()
    runner = attach(model)
    text = IDS[0].tolist()
    assert float((plain_logits(model, text) - alone).abs().max()) > 1e-2
    slot = runner.open(20)
    runner.prefill([slot], [text], Needs())
    tree = random_tree(np.random.default_rng(0), 8, VOCAB)
    [rows] = runner.forward([slot], [tree], Needs())
    assert worst(rows, path_logits(model, text, tree)) < TOLERANCE
    runner.detach()


# PEFT still reads an attribute that transformers renamed.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapters_may_have_another_dtype_than_the_model() -> None:
    """PEFT keeps adapters of a bfloat16 model in float32 by default."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    model = peft.get_peft_model(FAMILIES["llama"]().to(torch.bfloat16), config).eval()
    assert {p.dtype for p in model.parameters()} == {torch.float32, torch.bfloat16}
    runner = attach(model)
    text = IDS[0].tolist()
    slot = runner.open(20)
    runner.prefill([slot], [text], Needs())
    tree = random_tree(np.random.default_rng(0), 8, VOCAB)
    [rows] = runner.forward([slot], [tree], Needs())
    expected = path_logits(model, text, tree)
    assert worst(rows, expected) < 0.05 * float(expected.abs().max())
    runner.detach()


def _refused(make: Callable[[], Any], reason: str) -> None:
    model = make()
    before = getattr(model.config, "_attn_implementation", None)
    with pytest.raises(DraftwoodError, match=reason):
        attach(model)
    assert getattr(model.config, "_attn_implementation", None) == before


def _in_training() -> Any:
    model = FAMILIES["llama"]()
    model.train()
    return model


def _flex() -> Any:
    model = FAMILIES["llama"]()
    model.config._attn_implementation = "flex_attention"
    return model


def _offloaded() -> Any:
    model = FAMILIES["llama"]()
    model.hf_device_map = {"model": 0, "lm_head": "disk"}
    return model


def _ready(model: Any) -> Any:
    return model.eval()


def _bloom() -> Any:
    return _ready(
        hf.BloomForCausalLM(hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4))
    )


def _mpt() -> Any:
    return _ready(
        hf.MptForCausalLM(
            hf.MptConfig(
                vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, bos_token_id=1, eos_token_id=2
            )
        )
    )


def _mamba() -> Any:
    return _ready(
        hf.MambaForCausalLM(
            hf.MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4)
        )
    )


def _t5() -> Any:
    return _ready(
        hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=VOCAB, d_model=32, d_ff=32, d_kv=8, num_layers=1, num_heads=2)
        )
    )


def _llama4() -> Any:
    return _ready(
        hf.Llama4ForCausalLM(
            hf.Llama4TextConfig(
                vocab_size=VOCAB,
                hidden_size=32,
                intermediate_size=32,
                intermediate_size_mlp=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                num_local_experts=2,
                pad_token_id=0,
                eos_token_id=2,
                bos_token_id=1,
            )
        )
    )


def _hybrid() -> Any:
    model = FAMILIES["qwen3"]()
    model.config.layer_types = ["full_attention", "linear_attention"]
    return model


def _dynamic_int8() -> Any:
    model = FAMILIES["llama"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            model, {nn.Linear}, dtype=torch.qint8
        )


def _llm_int8(threshold: float = 6.0) -> Any:
    """A stand-in: a class of the name and the module of bitsandbytes' own."""
    kind = type("Linear8bitLt", (nn.Linear,), {"__module__": "bitsandbytes.nn.modules"})
    model = FAMILIES["llama"]()
    layer: Any = kind(32, 48, bias=False)
    layer.state = SimpleNamespace(threshold=threshold)
    model.model.layers[1].mlp.up_proj = layer
    return model


def test_llm_int8_without_outliers_is_not_refused() -> None:
    attach(_llm_int8(threshold=0.0)).detach()


@pytest.mark.parametrize("make", [_bloom, _mpt])
def test_transformers_adds_nothing_to_a_refusal(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    noisy = logging.getLogger("transformers")
    noisy.addHandler(caplog.handler)
    try:
        with pytest.raises(DraftwoodError, match="computes attention by itself"):
            attach(model)
    finally:
        noisy.removeHandler(caplog.handler)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_dynamic_int8, "scales activations by the largest one"),
        (_llm_int8, "an outlier in any row"),
        (_bloom, "ignores set_attn_implementation"),
        (_mpt, "ignores set_attn_implementation"),
        (_mamba, "recurrent state"),
        (_t5, "encoder-decoder"),
        (_llama4, "by the cache slot"),
        (_hybrid, "cannot branch"),
        (_in_training, r"call model\.eval"),
        (_flex, "attn_implementation='sdpa' or 'eager'"),
        (_offloaded, "spread over several devices or offloaded"),
        (lambda: nn.Linear(2, 2), "not a transformers model"),
    ],
)
def test_models_that_cannot_decode_trees_are_refused(make: Callable[[], Any], reason: str) -> None:
    if isinstance(make(), nn.Linear):
        with pytest.raises(DraftwoodError, match=reason):
            attach(make())
    else:
        _refused(make, reason)


def test_a_second_attachment_is_the_first_unless_settings_differ() -> None:
    model = FAMILIES["llama"]()
    runner = attach(model, self_test=False)
    assert attach(model, self_test=False) is runner
    with pytest.raises(DraftwoodError, match=r"packing=True, chunk=512, self_test=False: call"):
        attach(model)
    with pytest.raises(DraftwoodError, match=r"draftwood\.detach\(model\) first"):
        attach(model, packing=False, self_test=False)
    runner.detach()
    again = attach(model)
    assert again is not runner
    assert attach(model, self_test=False) is again
    again.detach()


def test_a_copy_of_an_attached_model_is_refused() -> None:
    model = FAMILIES["llama"]()
    runner = attach(model, self_test=False)
    copied = copy.deepcopy(model)
    with pytest.raises(DraftwoodError, match="a copy of an attached model"):
        attach(copied)
    runner.detach()
    attach(copy.deepcopy(model), self_test=False).detach()


def test_detach_undoes_the_attachment_and_warns_without_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = FAMILIES["llama"]()
    original, kinds = model.config._attn_implementation, [type(m) for m in model.modules()]
    attach(model, self_test=False)
    assert model.config._attn_implementation != original
    detach(model)
    assert model.config._attn_implementation == original
    assert [type(m) for m in model.modules()] == kinds
    assert not caplog.text
    detach(model)
    assert "this LlamaForCausalLM is not attached: there is nothing to undo" in caplog.text


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_a_wrapper_and_its_model_share_an_attachment() -> None:
    peft = pytest.importorskip("peft")
    model = FAMILIES["llama"]()
    wrapper = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"])).eval()
    runner = attach(wrapper, self_test=False)
    assert runner_of(model) is runner
    detach(model)
    again = runner_of(model)
    assert again is not runner
    assert runner_of(wrapper) is again
    detach(wrapper)
    assert not model.config._attn_implementation.startswith("draftwood")


def test_training_mode_is_refused_after_attaching_too() -> None:
    model = FAMILIES["llama"]()
    runner = attach(model, self_test=False)
    model.train()
    with pytest.raises(DraftwoodError, match="training mode"):
        runner.open(4)


def test_a_chunk_needs_a_token() -> None:
    with pytest.raises(DraftwoodError, match="chunk is 0"):
        attach(FAMILIES["llama"](), chunk=0)
