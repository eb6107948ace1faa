"""Tiny sources and target shapes whose every ratio is another: nothing agrees by accident."""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood.lab.inflate.model import inflate
from draftwood.lab.inflate.shapes import LlamaShape

VOCAB = 50
SMALL = LlamaShape(hidden=16, layers=2, heads=4, kv_heads=2, head_dim=4, ffn=24)
# Groups of 3 for groups of 2, heads three times as large, a width that is no multiple.
LARGE = LlamaShape(hidden=36, layers=4, heads=9, kv_heads=3, head_dim=12, ffn=40)


def small_llama(
    shape: LlamaShape = SMALL, *, tied: bool = False, rope: dict[str, object] | None = None
) -> LlamaForCausalLM:
    """A random Llama with norms that are not all ones and an eps that is felt."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB,
        **shape.config,
        max_position_embeddings=128,
        initializer_range=0.5,
        rms_norm_eps=0.05,
        tie_word_embeddings=tied,
        rope_parameters=rope or {"rope_type": "default", "rope_theta": 500.0},
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 2.0)
    model.train(mode=False)
    return model


def inflated(
    source: LlamaForCausalLM, large: LlamaShape = LARGE, *, seed: int = 0
) -> LlamaForCausalLM:
    return inflate(source, large, dtype=torch.float32, seed=seed)


def ids(count: int = 40) -> torch.Tensor:
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(3))


def with_config(model: LlamaForCausalLM, **changes: object) -> LlamaForCausalLM:
    """The model with a configuration that says something else."""
    changed = copy.copy(model)
    changed.config = copy.deepcopy(model.config)
    for name, value in changes.items():
        setattr(changed.config, name, value)
    return changed
