"""Tiny, randomly initialised models and a byte-level tokenizer, made in a moment."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 260
CHAT = (
    "{% for m in messages %}{{ 'User: ' if m['role'] == 'user' else 'Assistant: ' }}"
    "{{ m['content'] }}\n\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


@cache
def tiny_tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    """One token per byte, ``<eos>`` = 256; nothing is merged, so any text round-trips."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate(alphabet)} | {"<eos>": 256}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    # transformers leaves this constructor and eval() untyped.
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner, eos_token="<eos>"
    )
    if chat:
        made.chat_template = CHAT
    return made


def tiny_llama(
    *, seed: int = 0, layers: int = 2, context: int = 256, **changed: Any
) -> LlamaForCausalLM:
    """A Llama of two layers with grouped-query heads, float32, in evaluation mode.

    ``changed`` are further settings of its configuration.
    """
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": context,
        "initializer_range": 0.3,
        "eos_token_id": 256,
        "bos_token_id": 256,
        "pad_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(**(sizes | changed)))
    model.train(mode=False)
    return model


def save_tiny(directory: Path, *, chat: bool = True) -> Path:
    """Write a tiny model and its tokenizer as a checkpoint directory."""
    tiny_llama().save_pretrained(directory)
    tiny_tokenizer(chat=chat).save_pretrained(directory)
    return directory
