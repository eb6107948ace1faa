"""A checkpoint of a tiny random model with a tokenizer of bytes, for engines that load a directory.

python -m tests.factories.tiny_checkpoint DIRECTORY
"""

import sys
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.factories.tiny_llama import tiny_tokenizer

VOCAB = 320


def write_checkpoint(directory: Path) -> Path:
    """Write a Qwen 2 of two layers."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=256,
        pad_token_id=257,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
