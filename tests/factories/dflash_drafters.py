"""Tiny DFlash drafters: configurations and random tensors in z-lab's layout."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from draftwood.drafters.dflash.config import read_config
from draftwood.drafters.dflash.network import DFlashNetwork, Stored
from draftwood.protocols import TargetInfo

HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 8, 24


def raw_config(
    hidden: int = 32, layers: int = 2, ids: tuple[int, ...] = (0, 1), **changes: Any
) -> dict[str, Any]:
    """A ``config.json`` of z-lab's layout; ``dflash`` holds changes of ``dflash_config``."""
    inner = changes.pop("dflash", {})
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "vocab_size": 96,
        "block_size": 5,
        "dflash_config": {"target_layer_ids": list(ids), "mask_token_id": 7, **inner},
        **changes,
    }


def random_tensors(raw: dict[str, Any], taps: int = 2) -> dict[str, torch.Tensor]:
    """Tensors of z-lab's layout for a configuration."""
    torch.manual_seed(11)
    hidden, inner, size = raw["hidden_size"], raw["intermediate_size"], raw["head_dim"]
    q, kv = raw["num_attention_heads"] * size, raw["num_key_value_heads"] * size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for i in range(raw["num_hidden_layers"]):
        shapes |= {
            f"layers.{i}.self_attn.q_proj.weight": (q, hidden),
            f"layers.{i}.self_attn.k_proj.weight": (kv, hidden),
            f"layers.{i}.self_attn.v_proj.weight": (kv, hidden),
            f"layers.{i}.self_attn.o_proj.weight": (hidden, q),
            f"layers.{i}.self_attn.q_norm.weight": (size,),
            f"layers.{i}.self_attn.k_norm.weight": (size,),
            f"layers.{i}.mlp.gate_proj.weight": (inner, hidden),
            f"layers.{i}.mlp.up_proj.weight": (inner, hidden),
            f"layers.{i}.mlp.down_proj.weight": (hidden, inner),
            f"layers.{i}.input_layernorm.weight": (hidden,),
            f"layers.{i}.post_attention_layernorm.weight": (hidden,),
        }
    return {
        name: 1 + 0.2 * torch.randn(shape) if len(shape) == 1 else 0.3 * torch.randn(shape)
        for name, shape in shapes.items()
    }


def saved(directory: Path, raw: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    """A checkpoint in a directory."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(raw))
    save_file(tensors, directory / "model.safetensors")
    return str(directory)


def made_network(target: TargetInfo, seed: int = 11) -> DFlashNetwork:
    """A network with its own embedding and output, which reads the embedding of the target."""
    torch.manual_seed(seed)
    raw = raw_config(8, ids=(-1,), head_dim=4, dflash={"mask_token_id": 0})
    config = read_config(raw | {"hidden_size": target.hidden_size}, target)
    rows = target.vocab_size
    network = DFlashNetwork(config, Stored(outputs=rows, embeddings=rows))
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.4)
    network.share(torch.nn.Embedding(rows, target.hidden_size), None, rows)
    network.train(mode=False)
    return network
