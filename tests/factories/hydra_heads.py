"""Tiny Hydra heads: checkpoints in the published layout, and heads with random weights."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from draftwood.drafters.hydra.config import HydraConfig
from draftwood.drafters.hydra.heads import HydraHeads
from draftwood.protocols import TargetInfo

HEADS, LAYERS = 4, 3


def raw_config(arch: str = "prefix-mlp", **changes: Any) -> dict[str, Any]:
    """A published ``config.json``."""
    return {
        "base_model_name_or_path": "x",
        "hydra_head_arch": arch,
        "grounded_heads": True,
        "hydra_num_heads": HEADS,
        "hydra_num_layers": LAYERS,
        "hidden_state_offset": 0,
        **changes,
    }


def random_tensors(target: TargetInfo, arch: str = "prefix-mlp") -> dict[str, torch.Tensor]:
    """Tensors under the published names, for the target's sizes."""
    torch.manual_seed(6)
    width, rows, config = target.hidden_size, target.vocab_size, target.config
    step, first, tail = (2, 1, ".1") if arch == "prefix-mlp" else (1, 0, "")
    shapes: dict[str, tuple[int, ...]] = {"input_embed_fn.weight": (rows, width)}
    for head in range(HEADS):
        joined = (head + 2) * width
        for part in ("linear", "res_connection"):
            shapes[f"hydra_mlp.{head}.{first}.{part}.weight"] = (width, joined)
            shapes[f"hydra_mlp.{head}.{first}.{part}.bias"] = (width,)
        for layer in range(1, LAYERS):
            name = f"hydra_mlp.{head}.{first + step * layer}.linear"
            shapes |= {f"{name}.weight": (width, width), f"{name}.bias": (width,)}
        shapes[f"hydra_lm_head.{head}{tail}.weight"] = (rows, width)
        shapes[f"hydra_lm_head.{head}{tail}.bias"] = (rows,)
    if arch == "prefix-mlp":
        size, inner = config["head_dim"], config["intermediate_size"]
        q, kv = (size * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
        layer_shapes = {
            "self_attn.q_proj": (q, width),
            "self_attn.k_proj": (kv, width),
            "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, q),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        prefix = "prefix_embeding_layer"
        shapes |= {f"{prefix}.layers.0.{n}.weight": shape for n, shape in layer_shapes.items()}
        shapes |= {f"{prefix}.norm.weight": (width,), f"{prefix}.embed_tokens.weight": (2, width)}
    return {
        name: 0.15 * torch.randn(shape) + float("norm" in name) for name, shape in shapes.items()
    }


def saved(directory: Path, raw: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    """A checkpoint in a directory, pickled as the published ones are."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(raw))
    torch.save(tensors, directory / "hydra_lm_head.pt")
    return str(directory)


def made_hydra(target: TargetInfo, seed: int = 5) -> HydraHeads:
    """Three heads with a prefix layer, for a target that is only described."""
    torch.manual_seed(seed)
    prefix = LlamaConfig(
        hidden_size=target.hidden_size,
        intermediate_size=8,
        num_attention_heads=1,
        head_dim=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    heads = HydraHeads(HydraConfig(3, 2, prefix), target.hidden_size, target.vocab_size)
    for parameter in heads.parameters():
        parameter.data.normal_(std=0.5)
    heads.share_embedding(torch.nn.Embedding(target.vocab_size, target.hidden_size))
    heads.train(mode=False)
    return heads
