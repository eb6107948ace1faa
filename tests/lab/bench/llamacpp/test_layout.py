"""A Llama's weights get the names, the order of rows and the numbers that GGUF's ``llama`` has."""

from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.llamacpp import gguf
from tests.factories.tiny_llama import tiny_llama


def llama(dtype: torch.dtype = torch.float32, **changed: Any) -> LlamaForCausalLM:
    """A Llama of one layer; ``changed`` are settings of its configuration."""
    sizes: dict[str, Any] = {
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(sizes | changed)))
    for parameter in model.parameters():  # its rotary angles stay float32, as in a loaded model
        parameter.data = parameter.data.to(dtype)
    model.train(mode=False)
    return model


def test_rows_of_a_head_are_interleaved() -> None:
    # Two heads of six dimensions; a row is its own number.
    rows = torch.arange(12).view(12, 1)
    found = gguf.interleaved(rows, 2)
    assert found.flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def test_only_queries_and_keys_are_interleaved_each_by_its_own_heads() -> None:
    heads = {w.name: w.heads for w in gguf.weights(llama())}
    assert {name: n for name, n in heads.items() if n} == {
        "blk.0.attn_q.weight": 4,
        "blk.0.attn_k.weight": 2,
    }


def test_every_weight_has_its_place() -> None:
    model = llama(num_hidden_layers=2)
    parts = {
        "attn_norm": (16,),
        "attn_q": (16, 16),
        "attn_k": (8, 16),
        "attn_v": (8, 16),
        "attn_output": (16, 16),
        "ffn_norm": (16,),
        "ffn_gate": (24, 16),
        "ffn_up": (24, 16),
        "ffn_down": (16, 24),
    }
    assert {w.name: w.shape for w in gguf.weights(model)} == {
        "token_embd.weight": (20, 16),
        "output_norm.weight": (16,),
        "output.weight": (20, 16),
        **{f"blk.{n}.{part}.weight": shape for n in (0, 1) for part, shape in parts.items()},
    }


def test_a_tied_embedding_comes_once() -> None:
    names = [w.name for w in gguf.weights(llama(tie_word_embeddings=True))]
    assert "token_embd.weight" in names
    assert "output.weight" not in names


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_matrices_keep_their_dtype_and_vectors_are_float32(dtype: torch.dtype) -> None:
    model = llama(dtype)
    for weight in gguf.weights(model):
        assert weight.dtype == (torch.float32 if "norm" in weight.name else dtype)
        data = weight.data()
        assert (tuple(data.shape), data.dtype) == (weight.shape, weight.dtype)
        assert data.is_contiguous()


def test_sizes_are_those_of_the_configuration() -> None:
    rope = {"rope_theta": 500000.0}
    model = llama(torch.bfloat16, head_dim=6, rms_norm_eps=1e-5, rope_parameters=rope)
    assert gguf.metadata(model) == {
        "general.file_type": 32,
        "llama.context_length": 64,
        "llama.vocab_size": 20,
        "llama.embedding_length": 16,
        "llama.block_count": 1,
        "llama.feed_forward_length": 24,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 6,
        "llama.attention.value_length": 6,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": 6,
        "llama.rope.freq_base": 500000.0,
        "tokenizer.ggml.model": "none",
    }


def test_angles_that_are_scaled_by_constants_are_divided() -> None:
    linear = llama(rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0})
    divisors = {w.name: w for w in gguf.weights(linear)}["rope_freqs.weight"].data()
    assert divisors.dtype == torch.float32
    torch.testing.assert_close(divisors, torch.tensor([4.0, 4.0]))
    # Llama 3's rule: wavelengths 2π and 2π * 100, kept below 2π * 10 = 64 / 1 and divided above.
    rule = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    divisors = {w.name: w for w in gguf.weights(llama(rope_parameters=rule))}[
        "rope_freqs.weight"
    ].data()
    torch.testing.assert_close(divisors, torch.tensor([1.0, 8.0]))


def test_plain_angles_need_no_divisors() -> None:
    assert "rope_freqs.weight" not in {w.name for w in gguf.weights(llama())}


def _qwen() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=20,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            pad_token_id=None,
        )
    )


class Derived(LlamaForCausalLM):  # type: ignore[no-untyped-call]
    """A model that may compute anything."""


def _derived() -> PreTrainedModel:
    return Derived(llama().config)


def _quantised() -> PreTrainedModel:
    model = llama()
    gate = model.model.layers[0].mlp.gate_proj
    gate.weight = torch.nn.Parameter(gate.weight.to(torch.int8), requires_grad=False)
    return model


def _part_of_a_head() -> PreTrainedModel:
    model = llama()
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq[:1]
    return model


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_qwen, "are for LlamaForCausalLM and this target is Qwen3ForCausalLM: leave them out"),
        (_derived, "this target is Derived: leave them out"),
        (lambda: llama(hidden_act="gelu"), "its activation is 'gelu'"),
        (lambda: llama(rope_parameters=YARN), "rule 'yarn', not default, linear, llama3"),
        (lambda: llama(attention_bias=True), r"has no weight .*layers\.0\.self_attn\.q_proj\.bias"),
        (lambda: llama(mlp_bias=True), r"has no weight .*layers\.0\.mlp\.gate_proj\.bias"),
        (_quantised, r"gate_proj\.weight is of torch\.int8: load it unquantised"),
        (_part_of_a_head, "a part of each head"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(model: Any, said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        gguf.check(model())


def test_what_it_can_hold_is_not_refused() -> None:
    gguf.check(tiny_llama())
    gguf.check(llama(torch.bfloat16, tie_word_embeddings=True))
