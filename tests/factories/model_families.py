"""Tiny, randomly initialised models of the families that trees must work on, and of some they
cannot work on; all float32 in evaluation mode, with weights large enough to tell tokens apart."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

VOCAB = 96
WINDOW = 16
CONTEXT = 160

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_MIXED = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": WINDOW,
}

SHARED = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": WINDOW,
    "head_dim": 8,
    "num_kv_shared_layers": 3,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": VOCAB,
}


def make_model(kind: type[Any], config: type[Any], **settings: Any) -> Any:
    """A model of this configuration, with the same weights at every call."""
    torch.manual_seed(0)
    return kind(config(**settings)).eval()


def _small(kind: type[Any], config: type[Any], **settings: Any) -> Callable[[], Any]:
    return lambda: make_model(kind, config, **(SMALL | settings))


def _with_sinks(model: Any) -> Any:
    """Attention sinks that take a good share of the weights, different for every head."""
    for layer in model.model.layers:
        layer.self_attn.sinks.data += 2
    return model


def scaled(model: Any) -> Any:
    """Scores are not divided by the root of the width, and norms enlarge what chance made small."""
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.data.fill_(0.5 * layer.self_attn.head_dim**-0.5)
        if layer.hidden_size_per_layer_input:
            layer.post_per_layer_input_norm.weight.data.fill_(0.3)
    return model


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": _small(hf.LlamaForCausalLM, hf.LlamaConfig),
    "qwen2": _small(hf.Qwen2ForCausalLM, hf.Qwen2Config),
    "qwen3": _small(hf.Qwen3ForCausalLM, hf.Qwen3Config, head_dim=8),
    "mistral": _small(hf.MistralForCausalLM, hf.MistralConfig, sliding_window=None),
    "mistral_sliding": _small(hf.MistralForCausalLM, hf.MistralConfig, sliding_window=WINDOW),
    "gpt_neox": _small(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig),
    "gemma2": _small(
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config,
        head_dim=8,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=2.0,
        attn_implementation="eager",
        **_MIXED,
    ),
    "gemma3": _small(
        hf.Gemma3ForCausalLM, hf.Gemma3TextConfig, head_dim=8, query_pre_attn_scalar=8, **_MIXED
    ),
    "gemma4": lambda: scaled(
        make_model(
            hf.Gemma4ForCausalLM,
            hf.Gemma4TextConfig,
            **SMALL | SHARED | {"global_head_dim": 16, "use_double_wide_mlp": True},
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
        )
    ),
    "gpt_oss": lambda: _with_sinks(
        make_model(
            hf.GptOssForCausalLM,
            hf.GptOssConfig,
            **SMALL | _MIXED | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
        )
    ),
    "phi3": _small(hf.Phi3ForCausalLM, hf.Phi3Config),
    "olmo2": _small(hf.Olmo2ForCausalLM, hf.Olmo2Config),
    "stablelm": _small(hf.StableLmForCausalLM, hf.StableLmConfig),
    "gpt2": lambda: make_model(
        hf.GPT2LMHeadModel,
        hf.GPT2Config,
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=CONTEXT,
        initializer_range=0.3,
    ),
    "mixtral": _small(hf.MixtralForCausalLM, hf.MixtralConfig, num_local_experts=4),
    "qwen3_moe": _small(
        hf.Qwen3MoeForCausalLM,
        hf.Qwen3MoeConfig,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
    ),
    "deepseek_v3": _small(
        hf.DeepseekV3ForCausalLM,
        hf.DeepseekV3Config,
        num_key_value_heads=4,
        moe_intermediate_size=24,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
    ),
}

gemma3n = _small(
    hf.Gemma3nForCausalLM,
    hf.Gemma3nTextConfig,
    laurel_rank=4,
    activation_sparsity_pattern=[0.5] * 2 + [0.0] * 4,
    **SHARED,
)
"""Like ``gemma4``, its last layers read the keys and values of earlier ones."""
