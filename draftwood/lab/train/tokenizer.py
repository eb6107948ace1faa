"""The tokenizer of the embedded models: a byte-level BPE, which round-trips any UTF-8 text."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError

END_OF_TEXT = "<|endoftext|>"

# Words and single digits with their leading space, runs of symbols, and runs of white space without
# the space that belongs to the next word.
_PIECES = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# "Assistant:" is followed by a space, unless the answer begins with a line break.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if not loop.first -%}{{ '\n\n' }}{%- endif -%}"
    "{%- if message['role'] == 'user' -%}{{ 'User: ' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' -%}"
    "{{ 'Assistant:' + ('' if message['content'].startswith('\n') else ' ')"
    " + message['content'] }}"
    "{%- elif message['role'] == 'system' -%}{{ message['content'] }}"
    "{%- else -%}{{ raise_exception('Roles are system, user and assistant.') }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '\n\nAssistant:' }}{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of ``vocab_size`` tokens on ``texts``.

    Token 0 is ``<|endoftext|>``, begin and end of every document; tokens 1 to 256 are the bytes.
    DraftwoodError if the vocabulary is smaller.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 1:
        raise DraftwoodError(f"--vocab-size is {vocab_size}; give {len(alphabet) + 1} or more.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def load_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """Read a tokenizer saved by `train_tokenizer`; DraftwoodError if there is none."""
    if not (directory / "tokenizer.json").is_file():
        raise DraftwoodError(
            f"There is no tokenizer.json in {directory}; train the tokenizer first."
        )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def bytes_per_token(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Length in bytes of every token's text, by id; 0 for ``<|endoftext|>``."""
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return [0 if piece == END_OF_TEXT else len(piece) for piece in pieces]


def fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 of the tokenizer's definition."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
