"""Tokenizers of different kinds for one kind of text, made in a moment."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

fast: Any = PreTrainedTokenizerFast  # its constructor has no annotations

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("in", "g"), ("Ã", "¶"), ("a", "b")]
"""``Ã¶`` are the two bytes of ö."""


def byte_level(
    merges: Sequence[tuple[str, str]] = tuple(MERGES), *, eos: str = "<eos>", shift: int = 0
) -> PreTrainedTokenizerBase:
    """A byte-level BPE: all bytes, the merged tokens, ``eos``; the ids are rotated by ``shift``."""
    names = [*ALPHABET, *("".join(pair) for pair in merges), eos]
    vocab = {name: (i + shift) % len(names) for i, name in enumerate(names)}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made: PreTrainedTokenizerBase = fast(tokenizer_object=inner, eos_token=eos)
    return made


WORDS = ("▁", "▁the", "▁t", "the", "ing", "he", "s", "A", "ö", "▁Ö", "한", "<eos>", "o", "w", "n")


def metaspace(words: Sequence[str] = WORDS, *, byte_tokens: bool = True) -> PreTrainedTokenizerBase:
    """A unigram model of words with ``▁`` for spaces, with or without tokens of bytes.

    ``<s>`` begins a text, ``</s>`` ends one. A space is added to the beginning of a text.
    """
    names = [f"<0x{byte:02X}>" for byte in range(256)] if byte_tokens else []
    special = ["<unk>", "<s>", "</s>"]
    vocab = [(name, 0.0) for name in special] + [(name, -9.0) for name in names]
    vocab += [(word, -float(9 - len(word))) for word in words]
    inner = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=byte_tokens))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made: PreTrainedTokenizerBase = fast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    return made


def named_ids(tokenizer: PreTrainedTokenizerBase, *names: str) -> list[int]:
    """The ids of tokens by their names."""
    found = tokenizer.convert_tokens_to_ids(list(names))
    assert isinstance(found, list)
    return found
