"""Tiny, randomly initialised models with recurrent layers, whose states matter for their logits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

VOCAB = 97
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_THREE_TO_ONE = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
_CONVOLUTIONS = ["conv", "conv", "full_attention", "conv"]
_GATED_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "head_dim": 16,
    "layer_types": _THREE_TO_ONE,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "layer_types": _THREE_TO_ONE,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": SMALL | _GATED_DELTA | _EXPERTS,
    "qwen3_5_text": SMALL | _GATED_DELTA,
    "qwen3_5_moe_text": SMALL | _GATED_DELTA | _EXPERTS,
    "olmo_hybrid": SMALL
    | {
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 12,
        "linear_value_head_dim": 24,
        "layer_types": _THREE_TO_ONE,
    },
    "kimi_linear": SMALL
    | _LATENT
    | {"num_local_experts": 4, "linear_head_dim": 16, "linear_num_heads": 4},
    "bailing_hybrid": SMALL
    | _LATENT
    | {
        "num_local_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "head_dim": 16,
        "first_k_dense_replace": 1,
    },
    "granitemoehybrid": SMALL
    | _MAMBA2
    | {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 64,
        "position_embedding_type": "rope",
        "layer_types": _THREE_TO_ONE,
    },
    "bamba": SMALL | _MAMBA2 | {"attn_layer_indices": [2]},
    "falcon_h1": SMALL | _MAMBA2 | {"num_hidden_layers": 3, "mamba_d_ssm": 128},
    "nemotron_h": SMALL
    | {
        "num_hidden_layers": 6,
        "layers_block_type": ["mamba", "moe", "mamba", "attention", "mamba", "moe"],
        "head_dim": 16,
        "ssm_state_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "conv_kernel": 4,
        "chunk_size": 8,
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
    "zamba2": SMALL
    | {
        "num_key_value_heads": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "mamba_d_state": 16,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
        "chunk_size": 8,
        "num_mem_blocks": 1,
        "use_mem_rope": True,
    },
    "lfm2": SMALL | {"conv_L_cache": 3, "layer_types": _CONVOLUTIONS},
    "lfm2_moe": SMALL
    | {
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_dense_layers": 1,
        "conv_L_cache": 3,
        "layer_types": _CONVOLUTIONS,
    },
    "lfm3": SMALL
    | {
        "head_dim": 16,
        "conv_L_cache": 7,
        "sliding_window": 8,
        "layer_types": ["conv", "sliding_attention", "conv", "full_attention"],
    },
    "jamba": SMALL
    | {
        "num_experts": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 8,
    },
}


def hybrid(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model of this type, with the same weights at every call.

    Weights are large, so that states and windows matter, and decays are from almost 1 to strong.
    """
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **CONFIGS[kind])
    config._attn_implementation = "sdpa"
    made: Any = AutoModelForCausalLM
    model = made.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.copy_(torch.empty_like(parameter, dtype=torch.float32).uniform_(-4, 1))
            elif name.endswith("dt_bias"):
                parameter.normal_(0, 1)
            elif parameter.dim() >= 2:
                width = 0.6 if "conv" in name else 1.4 / parameter.shape[-1] ** 0.5
                parameter.normal_(0, width)
            elif "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
    return model


HYBRIDS: dict[str, Callable[[], Any]] = {
    kind: partial(hybrid, kind) for kind in CONFIGS if kind in CONFIG_MAPPING
}
"""Those that the installed version of transformers has."""

FEW = tuple(
    name
    for name in (
        "qwen3_5_text",
        "kimi_linear",
        "granitemoehybrid",
        "jamba",
        "lfm3" if "lfm3" in HYBRIDS else "lfm2",
    )
    if name in HYBRIDS
)
"""One of each rule, and a convolution, beside windows where transformers has such a model."""


def known(*names: str) -> list[Any]:
    """Types of models, as parameters of a test, which is skipped for those that are missing."""
    lacking = "this version of transformers has no {}"
    return [
        pytest.param(
            name,
            id=name,
            marks=pytest.mark.skipif(name not in CONFIG_MAPPING, reason=lacking.format(name)),
        )
        for name in names
    ]
