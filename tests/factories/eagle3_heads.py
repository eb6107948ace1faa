"""Tiny EAGLE-3 heads with weights that tell every part of the layer apart."""

from typing import Any

import torch
from torch import nn

from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.protocols import TargetInfo

H, HT, V, VD = 16, 24, 40, 24
LAYERS = 8
TARGET = TargetInfo(
    vocab_size=V,
    context_limit=64,
    layers=LAYERS,
    hidden_size=HT,
    device=torch.device("cpu"),
    dtype=torch.float32,
)


def tiny_config(**changes: Any) -> Eagle3Config:
    """Four query heads on two key heads; every public size differs from the others."""
    fields: dict[str, Any] = {
        "vocab_size": V,
        "draft_vocab_size": VD,
        "hidden_size": H,
        "target_hidden_size": HT,
        "intermediate_size": 20,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50.0,
        "max_position_embeddings": 64,
        "taps": (2, 4, 5),
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return Eagle3Config(**(fields | changes))


def embedding(seed: int = 9, rows: int = V, width: int = H) -> nn.Embedding:
    torch.manual_seed(seed)
    return nn.Embedding(rows, width)


def tiny_head(*, seed: int = 0, **changes: Any) -> Eagle3Head:
    """All parameters random, norms around 1; every other token of the target is drafted."""
    config = tiny_config(**changes)
    head = Eagle3Head(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.25 * noise + float("norm" in name))
        if config.draft_vocab_size < V:
            ids = torch.cat([torch.arange(0, V, 2), torch.arange(1, V, 2)])
            ids = ids[: config.draft_vocab_size].sort().values
            head.d2t.copy_(ids - torch.arange(len(ids)))
            head.t2d.zero_()[ids] = True
    head.train(mode=False)
    if not config.own_embedding:
        head.set_input_embeddings(embedding())
    return head
