"""The fast way from token ids to text for byte-level tokenizers, which most models have.

There a token *is* a string of bytes, so text comes from an incremental UTF-8 decoder and nothing is
decoded twice. Everything else takes the general way of :class:`draftwood.engine.stop.Detokenizer`,
the plain twin of this one.
"""

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from draftwood.engine.stop import Detokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LONGEST = 4  # bytes of a character


class TextStream(Protocol):
    """Text of tokens as they come."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these tokens."""
        ...

    def flush(self) -> str:
        """The text held back, once no token will follow."""
        ...


def text_stream(tokenizer: "PreTrainedTokenizerBase", prompt_ids: Sequence[int]) -> TextStream:
    """Text of the tokens generated after a prompt, special tokens left out."""
    if is_byte_level(tokenizer):
        quick = ByteDetokenizer(tokenizer)
        # A prompt that ends within a character shares that one with what follows.
        if quick.ends_between_characters(prompt_ids):
            return quick
    return Detokenizer(tokenizer, prompt_ids)


def is_byte_level(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether a tokenizer's text is its tokens' bytes, one after the other."""
    # Only now, as this loads model code.
    from tokenizers.decoders import ByteLevel
    from transformers import TokenizersBackend

    return (
        isinstance(tokenizer, TokenizersBackend)
        and type(tokenizer)._decode is TokenizersBackend._decode
        and type(tokenizer.backend_tokenizer.decoder) is ByteLevel
    )


def _alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _alphabet()


class ByteDetokenizer:
    """What :class:`draftwood.engine.stop.Detokenizer` says, for a byte-level tokenizer.

    Args:
        tokenizer: one for which :func:`is_byte_level` holds.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder.items()
        self._known = {token: b"" for token, content in added if content.special}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def ends_between_characters(self, token_ids: Sequence[int]) -> bool:
        """Whether the text of these tokens is complete; it may begin within a character."""
        tail = b""
        for token in reversed(token_ids):
            tail = self._of(int(token)) + tail
            if len(tail) >= _LONGEST:
                break
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(tail)
        return not decoder.getstate()[0]

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these tokens."""
        return self._decoder.decode(b"".join(map(self._of, token_ids)))

    def flush(self) -> str:
        """The text held back, unfinished characters included, once no token will follow."""
        return self._decoder.decode(b"", final=True)

    def _of(self, token: int) -> bytes:
        found = self._known.get(token)
        if found is None:
            name = self._tokenizer.convert_ids_to_tokens(int(token))
            # None is an id that the model has and the tokenizer has not. Added tokens need not be
            # spelt in the alphabet.
            text = name if isinstance(name, str) else ""
            spelt = all(char in _BYTES for char in text)
            found = bytes(_BYTES[char] for char in text) if spelt else text.encode()
            self._known[token] = found
        return found
