"""Text of generated tokens, piece by piece.

Text that was handed out never changes: text that a later token could still alter, such as half a
character, is held back. :class:`Detokenizer` works with any tokenizer. :class:`ByteDetokenizer` is
its fast twin for byte-level tokenizers, which most models have: there a token *is* a string of
bytes, so text comes from an incremental UTF-8 decoder and nothing is decoded twice.
"""

import codecs
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from draftwood.tree import common_prefix

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LONGEST = 4  # bytes of a character

REPLACEMENT = "\ufffd"
"""Decoders put it in the place of bytes that are not, or not yet, a character."""

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>\Z")
"""The name of a byte in a byte-fallback vocabulary."""
_TAIL = 8
_PATIENCE = 4  # tokens; no character has more bytes


TextStream: TypeAlias = Union["Detokenizer", "ByteDetokenizer"]


def text_stream(
    tokenizer: "PreTrainedTokenizerBase",
    prompt_ids: Sequence[int],
    *,
    skip_special_tokens: bool = True,
    shown: Collection[int] = (),
) -> TextStream:
    """Text of the tokens generated after a prompt.

    By default without special tokens, except those of them that are ``shown``.
    """
    if is_byte_level(tokenizer):
        quick = ByteDetokenizer(tokenizer, skip_special_tokens=skip_special_tokens, shown=shown)
        # A prompt that ends within a character shares that one with what follows.
        if quick.ends_between_characters(prompt_ids):
            return quick
    return Detokenizer(tokenizer, prompt_ids, skip_special_tokens=skip_special_tokens, shown=shown)


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


class Detokenizer:
    """Text of the tokens generated after a prompt, piece by piece.

    All pieces together are what the generated tokens add to the prompt's text:
    ``decode(prompt + generated)`` after its longest common prefix with ``decode(prompt)``. With an
    empty prompt, and for byte-level tokenizers with any prompt that ends between characters, that
    is ``decode(generated)``; a SentencePiece tokenizer keeps the space before the first word.

    Each push decodes a window of a few tokens: those since the last character boundary, and
    enough before them to make the decoder join words as it would inside the whole text.
    ``tokenizers.decoders.DecodeStream`` works alike but cannot be flushed, shows bytes of a
    byte-fallback vocabulary that a later byte turns into replacement characters, and decodes an
    ever longer window while the model babbles invalid UTF-8.

    Args:
        tokenizer: any of transformers' tokenizers.
        prompt_ids: what the generated tokens follow.
        skip_special_tokens: leave special tokens out.
        shown: special tokens that are not left out.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        prompt_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        shown: Collection[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skips = skip_special_tokens
        self._shows_some = bool(shown)
        self._hidden = _hidden(tokenizer, shown) if skip_special_tokens else frozenset()
        self._window = self._tail(prompt_ids)
        self._settled = len(self._window)  # tokens whose text is out and final
        self._shown = self._decode(self._window)  # text of the window that is out

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these tokens; often one word, sometimes nothing."""
        self._window += token_ids
        end = len(self._window)
        while end > self._settled and self._waits(self._window[end - 1]):
            end -= 1
        if end == self._settled:
            return ""
        text = self._decode(self._window[:end])
        unfinished = text.endswith(REPLACEMENT)
        certain = text[:-1] if unfinished else text
        new = self._after_shown(certain)
        if unfinished:
            if new:
                self._shown = certain
            if end - self._settled > _PATIENCE:
                self._drop_garbage(text, end)
        elif new:
            # Only tokens that showed something may head a window: decoders treat the first word
            # of a text specially, and a skipped token would make the next one the first.
            self._window = self._window[self._settled :]
            self._settled = end - self._settled
            self._shown = self._decode(self._window[: self._settled])
        return new

    def flush(self) -> str:
        """The text held back, unfinished characters included, once no token will follow."""
        text = self._decode(self._window)
        new = self._after_shown(text)
        self._settled = len(self._window)
        self._shown = text
        return new

    def _tail(self, prompt_ids: Sequence[int]) -> list[int]:
        """The end of the prompt: enough to show something, and not cut within a run of bytes."""
        count = min(_TAIL, len(prompt_ids))
        while count < len(prompt_ids) and (
            self._waits(prompt_ids[-count]) or not self._decode(prompt_ids[-count:])
        ):
            count = min(2 * count, len(prompt_ids))
        return [int(token) for token in prompt_ids[len(prompt_ids) - count :]]

    def _after_shown(self, text: str) -> str:
        if text.startswith(self._shown):
            return text[len(self._shown) :]
        # Only where generated bytes complete or spoil the prompt's last character.
        return text[common_prefix(text, self._shown) :]

    def _drop_garbage(self, text: str, end: int) -> None:
        """Start the window at its last token if a character begins there: bounds its length.

        Cutting within a character makes two replacements of one, so equal text means a boundary.
        """
        last = self._decode(self._window[end - 1 : end])
        if last.endswith(REPLACEMENT) and self._decode(self._window[: end - 1]) + last == text:
            self._window = self._window[end - 1 :]
            self._settled = 0
            self._shown = last[:-1]

    def _waits(self, token: int) -> bool:
        """Whether the token's text depends on what follows it, or it has none.

        A byte-fallback decoder judges a run of bytes as a whole, and a token that is left out of
        the text does not end the run.
        """
        name = self._tokenizer.convert_ids_to_tokens(int(token))
        if not isinstance(name, str):  # an id that the model has and the tokenizer has not
            return True
        return token in self._hidden or BYTE_TOKEN.match(name) is not None

    def _decode(self, token_ids: Sequence[int]) -> str:
        if self._shows_some:  # a tokenizer leaves all out, or none
            token_ids = [token for token in token_ids if token not in self._hidden]
        return cast(
            str,
            self._tokenizer.decode(
                list(token_ids),
                skip_special_tokens=self._skips and not self._shows_some,
                clean_up_tokenization_spaces=False,
            ),
        )


def _hidden(tokenizer: "PreTrainedTokenizerBase", shown: Collection[int]) -> frozenset[int]:
    """The special tokens, except those that are shown."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(token for token, content in added if content.special and token not in shown)


def _alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _alphabet()


def byte_level_bytes(name: str) -> bytes:
    """The bytes of a byte-level token, by its name.

    Added tokens need not be spelt in the alphabet.
    """
    spelt = all(char in _BYTES for char in name)
    return bytes(_BYTES[char] for char in name) if spelt else name.encode()


class ByteDetokenizer:
    """The text of :class:`Detokenizer`, for a byte-level tokenizer.

    Args:
        tokenizer: one for which :func:`is_byte_level` holds.
        skip_special_tokens: leave special tokens out.
        shown: special tokens that are not left out.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        skip_special_tokens: bool = True,
        shown: Collection[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        hidden = _hidden(tokenizer, shown) if skip_special_tokens else ()
        self._known = dict.fromkeys(hidden, b"")
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
            # None is an id that the model has and the tokenizer has not.
            found = byte_level_bytes(name) if isinstance(name, str) else b""
            self._known[token] = found
        return found
