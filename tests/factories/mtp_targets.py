"""Tiny checkpoints of targets with MTP layers of random weights, under the published names."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers import modeling_layers

from tests.factories.model_families import SMALL

LAYERS = 2
WEIGHTS = "model.safetensors"

needs_mtp = pytest.mark.skipif(
    not hasattr(getattr(modeling_layers, "MtpModel", None), "forward_layer"),
    reason="this transformers has no MtpModel whose layers can be called",
)
"""For tests that load MTP layers."""

_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
_LATENT: dict[str, Any] = {
    **_EXPERTS,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
}
_RECURRENT: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
_SHARED_EXPERT = {**_EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24}
_FAMILIES: dict[str, dict[str, Any]] = {
    "glm4_moe": {**_EXPERTS, "n_routed_experts": 4},
    "deepseek_v3": {**_LATENT, "first_k_dense_replace": 1},
    "glm4_moe_lite": _LATENT,
    "mellum": {
        **_EXPERTS,
        "num_experts": 4,
        "head_dim": 8,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3_next": {**_RECURRENT, **_SHARED_EXPERT},
    "qwen3_5_text": _RECURRENT,
    "qwen3_5_moe_text": {**_RECURRENT, **_SHARED_EXPERT},
}
RECURRENT = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Families with recurrent layers; their MTP layers attend."""

_COUNTS = dict.fromkeys(RECURRENT, "mtp_num_hidden_layers")
_UNDER_MTP = ("mellum", *RECURRENT)
"""Families whose one layer is ``mtp.*``; that of others is behind the target's layers."""


def saved_target(
    directory: Path, family: str = "glm4_moe", count: int = 1, *, copies: bool = False
) -> Path:
    """Write a target and its MTP layers; returns the directory.

    Args:
        directory: created if there is none.
        family: ``model_type``.
        count: MTP layers.
        copies: the target's layers leave the embedding as it is, and so do the MTP layers.
    """
    named = _COUNTS.get(family, "num_nextn_predict_layers")
    # Qwen3-Next has one layer, and its configuration is silent on that.
    said = {} if family == "qwen3_next" else {named: count}
    torch.manual_seed(0)
    config: Any = hf.AutoConfig.for_model(family, **(SMALL | _FAMILIES[family] | said))
    auto: Any = hf.AutoModelForCausalLM
    auto.from_config(config).save_pretrained(directory)
    tensors = load_file(directory / WEIGHTS)
    last = f"model.layers.{LAYERS - 1}."
    block = {name.removeprefix(last): t for name, t in tensors.items() if name.startswith(last)}
    for number in range(count):
        tensors |= _mtp_layer(family, number, block, SMALL["hidden_size"])
    if copies:
        _leave_embeddings(tensors)
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    return directory


def loaded_target(directory: Path) -> Any:
    """The target, in evaluation mode."""
    model: Any = hf.AutoModelForCausalLM.from_pretrained(directory)
    model.train(mode=False)
    return model


def transformers_layers(directory: Path, family: str, count: int) -> tuple[Any, Any]:
    """A target and transformers' own ``MtpModel`` of its layers."""
    model = loaded_target(directory)
    model.config.num_mtp_layers = count
    if family == "glm4_moe_lite":
        model.config.mtp_mlp_layer_types = ["sparse"] * count
    if family in RECURRENT:
        model.config.mtp_layer_types = ["full_attention"] * count
    numbers = range(LAYERS, LAYERS + count)
    own = {rf"model\.layers\.{number}\." for number in numbers}
    model._keys_to_ignore_on_load_unexpected = {r"^mtp\."} if family in _UNDER_MTP else own
    mtp: Any = modeling_layers
    layers = mtp.MtpModel.from_pretrained(model)
    layers.train(mode=False)
    return model, layers


def _mtp_layer(
    family: str, number: int, block: dict[str, torch.Tensor], width: int
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7 + number)
    gain = 0.0 if family in RECURRENT else 1.0  # the weights of their norms are added to 1

    def noise(name: str, *shape: int) -> torch.Tensor:
        return 0.2 * torch.randn(shape, generator=generator) + gain * ("norm" in name)

    prefix = f"model.layers.{LAYERS + number}."
    names = {name: prefix + name for name in ("enorm", "hnorm", "eh_proj")}
    names["norm"] = prefix + "shared_head.norm"
    if family in _UNDER_MTP:
        prefix = "mtp.layers.0."
        names = {
            "enorm": "mtp.pre_fc_norm_embedding",
            "hnorm": "mtp.pre_fc_norm_hidden",
            "eh_proj": "mtp.fc",
            "norm": "mtp.norm",
        }
    found = {prefix + name: noise(name, *each.shape) for name, each in block.items()}
    for name in ("enorm", "hnorm", "norm"):
        found[f"{names[name]}.weight"] = noise("norm", width)
    found[f"{names['eh_proj']}.weight"] = noise("eh_proj", width, 2 * width)
    return found


def _leave_embeddings(tensors: dict[str, torch.Tensor]) -> None:
    """Every layer adds nothing; the MTP layers join to the token's embedding, without gains."""
    for name, tensor in tensors.items():
        if "o_proj" in name or "down_proj" in name:
            tensor.zero_()
        elif "eh_proj" in name:
            tensor.copy_(torch.eye(*tensor.shape))
        elif name.endswith(("enorm.weight", "hnorm.weight", "shared_head.norm.weight")):
            tensor.fill_(1)
