"""Tiny heads of a tiny Llama, of every variant that can be inflated."""

from typing import Any

import torch
from transformers import LlamaForCausalLM

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.inflate.shapes import LlamaShape
from tests.factories.eagle3_heads import tiny_config
from tests.factories.tiny_llama import tiny_llama

# So few tokens that random drafts are accepted.
VOCAB, LAYERS, HIDDEN = 40, 4, 32
# Heads of 8 become heads of 16; groups of 2 become groups of 3; two layers are added.
LARGE = LlamaShape(hidden=72, layers=6, heads=9, kv_heads=3, head_dim=16, ffn=64)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norms of taps": {"fc_norm": True},
    "a norm of the joined taps": {"norm_before_fc": True},
    "a bias of fc": {"fc_bias": True},
    "three layers": {"num_hidden_layers": 3},
    "norm before the residual": {"norm_before_residual": True},
    "the next row's h is normed": {"norm_output": True},
    "tables of its own": {"own_embedding": True},
    "the target's lm_head": {"own_output": False, "draft_vocab_size": VOCAB},
    "without fc": {"fuse": False, "taps": (LAYERS,)},
    "masks": {"mask_token": 7},
}


def target() -> LlamaForCausalLM:
    """A random Llama whose eps is felt."""
    ends: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None}
    return tiny_llama(seed=4, layers=LAYERS, vocab_size=VOCAB, rms_norm_eps=0.05, **ends)


def head_of(source: LlamaForCausalLM, *, seed: int = 0, **changes: Any) -> Eagle3Head:
    """A random head that shares the target's tables; all its norms differ from one."""
    fields: dict[str, Any] = {
        "vocab_size": VOCAB,
        "draft_vocab_size": 20,
        "hidden_size": HIDDEN,
        "target_hidden_size": HIDDEN,
        "head_dim": 8,
        "rms_norm_eps": 0.05,
        "max_position_embeddings": 256,
        "taps": (1, 3, 2),
    }
    head = Eagle3Head(tiny_config(**(fields | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.25 * noise + float("norm" in name))
        if head.config.draft_vocab_size < VOCAB:
            head.d2t.copy_(torch.arange(len(head.d2t)))  # every other token
            head.t2d.zero_()[head.target_ids()] = True
    head.train(mode=False)
    if not head.config.own_embedding:
        head.set_input_embeddings(source.get_input_embeddings())
    if not head.config.own_output:
        head.share_output(source.lm_head)
    return head


def ids(count: int = 30) -> torch.Tensor:
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(3))
