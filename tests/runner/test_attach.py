"""An attachment leaves the model itself, comes off without a trace, and refuses what it must."""

import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.attach import attach, detach, runner_of
from draftwood.runner.cpu.layouts import TRANSPOSED, LayoutChoice, Weight
from tests.factories.model_families import CONTEXT, FAMILIES, SMALL, VOCAB, make_model
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
    # The YaRN settings of the tiny gpt-oss are those of the published ones.
    limit = 32 * 4096 if family == "gpt_oss" else CONTEXT
    assert (info.vocab_size, info.context_limit) == (VOCAB, limit)
    assert (info.dtype, info.device.type) == (torch.float32, "cpu")
    assert (info.layers, info.hidden_size) == (model.config.num_hidden_layers, 32)
    runner.detach()
    assert generated(model) == before


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_layers_that_drop_further_arguments_attend_to_trees(implementation: str) -> None:
    settings = SMALL | {"attn_implementation": implementation}
    for model in (
        make_model(hf.StableLmForCausalLM, hf.StableLmConfig, **settings),
        make_model(hf.NemotronForCausalLM, hf.NemotronConfig, **settings),
    ):
        runner = attach(model)
        expected = generated(model)[IDS.shape[1] :]
        request = Request(IDS[0].tolist(), max_new_tokens=len(expected), eos=())
        found = Engine(runner, "goose:budget=8").generate([request])[0].tokens
        assert [*found] == expected
        runner.detach()


def test_the_layouts_of_the_weights_are_among_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    def transposed(weights: Sequence[Weight], **_: object) -> list[LayoutChoice | None]:
        return [LayoutChoice(TRANSPOSED)] * len(weights)

    monkeypatch.setattr("draftwood.runner.attach.cached_layouts", transposed)
    assert attach(FAMILIES["llama"]()).info.layouts == ("transposed",)
    assert attach(FAMILIES["llama"](), packing=False).info.layouts == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_pass_the_self_test(dtype: torch.dtype) -> None:
    assert attach(FAMILIES["llama"]().to(dtype)).info.dtype is dtype


# PEFT still reads an attribute that transformers renamed.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, TOLERANCE), (torch.bfloat16, 0.25)]
)
def test_an_adapter_is_part_of_the_model(dtype: torch.dtype, tolerance: float) -> None:
    """PEFT keeps adapters of a bfloat16 model in float32 by default."""
    peft = pytest.importorskip("peft")
    base = FAMILIES["llama"]().to(dtype)
    text = IDS[0].tolist()
    alone = plain_logits(base, text)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    model = peft.get_peft_model(base, config).eval()
    assert {p.dtype for p in model.parameters()} == {torch.float32, dtype}
    runner = attach(model)
    assert float((plain_logits(model, text) - alone).abs().max()) > 1e-2
    slot = runner.open(20)
    runner.prefill([slot], [text], Needs())
    tree = random_tree(np.random.default_rng(0), 8, VOCAB)
    [rows] = runner.forward([slot], [tree], Needs())
    assert worst(rows, path_logits(model, text, tree)) < tolerance


def _changed(family: str, **attributes: Any) -> Any:
    """A tiny model whose device map, or whose config, is another one."""
    model = FAMILIES[family]()
    for name, value in attributes.items():
        setattr(model if name == "hf_device_map" else model.config, name, value)
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


def _deaf(family: str) -> Any:
    """A model whose own setter ignores the implementation, as remote code's may."""
    model = FAMILIES[family]()
    model.set_attn_implementation = lambda *_: None
    return model


REFUSED: dict[str, Callable[[], Any]] = {
    "scales activations by the largest one": _dynamic_int8,
    "an outlier in any row": _llm_int8,
    "computes attention by itself and ignores set_attn_implementation": lambda: make_model(
        hf.BloomForCausalLM, hf.BloomConfig, vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4
    ),
    "ignores set_attn_implementation; decode it": lambda: make_model(
        hf.MptForCausalLM, hf.MptConfig, vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4
    ),
    "LlamaForCausalLM computes attention by itself": lambda: _deaf("llama"),
    "recurrent state": lambda: make_model(
        hf.MambaForCausalLM, hf.MambaConfig, vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2
    ),
    "encoder-decoder": lambda: make_model(
        hf.T5ForConditionalGeneration, hf.T5Config, vocab_size=VOCAB, d_model=32, num_layers=1
    ),
    "by the cache slot": lambda: make_model(
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig,
        **SMALL | {"head_dim": 8, "intermediate_size_mlp": 32, "num_local_experts": 2},
    ),
    "cannot branch": lambda: _changed("qwen3", layer_types=["full_attention", "linear_attention"]),
    r"call model\.eval": lambda: FAMILIES["llama"]().train(),
    "attn_implementation='sdpa' or 'eager'": lambda: _changed(
        "llama", _attn_implementation="flex_attention"
    ),
    "spread over several devices or offloaded": lambda: _changed(
        "llama", hf_device_map={"model": 0, "lm_head": "disk"}
    ),
    "not a transformers model": lambda: nn.Linear(2, 2),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_models_that_cannot_decode_trees_are_refused(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not changed, and transformers adds no warning of its own."""
    model = REFUSED[reason]()
    before = copy.copy(vars(getattr(model, "config", model)))
    noisy = logging.getLogger("transformers")
    noisy.addHandler(caplog.handler)
    try:
        with pytest.raises(DraftwoodError, match=reason):
            attach(model)
    finally:
        noisy.removeHandler(caplog.handler)
    assert caplog.records == []
    assert vars(getattr(model, "config", model)) == before


def test_llm_int8_without_outliers_is_not_refused() -> None:
    attach(_llm_int8(threshold=0.0))


def test_training_mode_is_refused_after_attaching_too() -> None:
    model = FAMILIES["llama"]()
    runner = attach(model, self_test=False)
    model.train()
    with pytest.raises(DraftwoodError, match="training mode"):
        runner.open(4)


def test_a_chunk_needs_a_token() -> None:
    with pytest.raises(DraftwoodError, match="chunk is 0"):
        attach(FAMILIES["llama"](), chunk=0)


def test_a_second_attachment_is_the_first_unless_settings_differ() -> None:
    model = FAMILIES["llama"]()
    runner = attach(model, self_test=False)
    assert attach(model, self_test=False) is runner
    with pytest.raises(DraftwoodError, match=r"packing=True, chunk=None, self_test=False: call"):
        attach(model)
    with pytest.raises(DraftwoodError, match=r"draftwood\.detach\(model\) first"):
        attach(model, packing=False, self_test=False)
    runner.detach()
    again = attach(model)
    assert again is not runner
    assert attach(model, self_test=False) is again
    again.detach()


@pytest.mark.parametrize("tied", [False, True])
def test_other_numbers_of_tokens_are_refused_after_attaching_too(tied: bool) -> None:
    model = make_model(hf.LlamaForCausalLM, hf.LlamaConfig, **SMALL, tie_word_embeddings=tied)
    runner = attach(model)
    model.resize_token_embeddings(VOCAB + 8)
    for again in (lambda: runner_of(model), lambda: runner.open(4)):
        with pytest.raises(DraftwoodError, match=r"96 logits when .* call draftwood.detach"):
            again()
    detach(model)
    assert attach(model).info.vocab_size == VOCAB + 8
    detach(model)


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
