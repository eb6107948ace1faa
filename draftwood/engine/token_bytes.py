"""The bytes that a tokenizer's tokens add to a text.

Vocabularies spell one text in different ways: ``Ġthe`` in a byte-level vocabulary is ``▁the`` in
one of SentencePiece, and ``Ċ`` is ``<0x0A>``. So tokens of two vocabularies are compared by their
bytes in the middle of a text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from transformers import PreTrainedTokenizerBase

from draftwood.engine.detokenize import (
    BYTE_TOKEN,
    REPLACEMENT,
    byte_level_bytes,
    is_byte_level,
)

BEFORE: Final = ("", "\n")
"""Texts to encode a text behind: some tokenizers add a space to the beginning of a text."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer and the bytes of its tokens.

    Attributes:
        tokenizer: as given.
        special: content of each special token, by id.
        bytes_of: bytes of each other token, by id. Those that are not known are left out.
        id_of: the token by its bytes. Of several tokens with the same bytes it is the one that the
            tokenizer produces, or the lowest.
    """

    tokenizer: PreTrainedTokenizerBase
    special: Mapping[int, str]
    bytes_of: Mapping[int, bytes]
    id_of: Mapping[bytes, int]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without special ones around it."""
        return encoded(self.tokenizer, text)

    def joined(self, ids: Sequence[int]) -> bytes:
        """The bytes of some tokens; those that are not known have none."""
        return b"".join(self.bytes_of.get(each, b"") for each in ids)

    def content(self, token: int) -> bytes:
        """The bytes that a token adds to a text; a special token's name."""
        special = self.special.get(token)
        return self.bytes_of.get(token, b"") if special is None else special.encode()

    def spelling(self, token: int) -> str:
        """A token as OpenAI's API spells it: its text, or ``bytes:\\xe2`` if that is no text."""
        found = self.content(token)
        try:
            return found.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)


def tokens_of(tokenizer: PreTrainedTokenizerBase, size: int) -> Tokens:
    """The tokens of a tokenizer whose ids are below ``size``, the model's rows."""
    special = _special(tokenizer)
    names = {
        number: name
        for name, number in tokenizer.get_vocab().items()
        if number < size and number not in special
    }
    found = _spelt(names) if is_byte_level(tokenizer) else _decoded(tokenizer, names)
    bytes_of = {number: each for number, each in sorted(found.items()) if each}
    return Tokens(
        tokenizer,
        {number: name for number, name in special.items() if number < size},
        bytes_of,
        _by_bytes(tokenizer, bytes_of),
    )


def encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The token ids of a text, without special tokens around it."""
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return found


def _special(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    added = tokenizer.added_tokens_decoder.items()
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    # None is a special token that the vocabulary lacks.
    found = {number: name for number, name in named if number is not None}
    return found | {number: each.content for number, each in added if each.special}


def _spelt(names: Mapping[int, str]) -> dict[int, bytes]:
    return {number: byte_level_bytes(name) for number, name in names.items()}


def _decoded(tokenizer: PreTrainedTokenizerBase, names: Mapping[int, str]) -> dict[int, bytes]:
    """Bytes of each token behind another one, as the tokenizer decodes them."""
    before = encoded(tokenizer, "a")
    start, *texts = _texts(tokenizer, [before, *([*before, number] for number in names)])
    found = {}
    for (number, name), text in zip(names.items(), texts, strict=True):
        own = text.removeprefix(start) if text.startswith(start) else REPLACEMENT
        if BYTE_TOKEN.match(name) and own != name:
            found[number] = bytes.fromhex(name[3:5])
        elif REPLACEMENT not in own:
            found[number] = own.encode()
    return found


def _texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[Sequence[int]]) -> list[str]:
    found = tokenizer.decode([list(each) for each in ids], clean_up_tokenization_spaces=False)
    assert isinstance(found, list)
    return found


def _by_bytes(
    tokenizer: PreTrainedTokenizerBase, bytes_of: Mapping[int, bytes]
) -> dict[bytes, int]:
    groups: dict[bytes, list[int]] = {}
    for number, each in bytes_of.items():
        groups.setdefault(each, []).append(number)
    return {
        each: ids[0] if len(ids) == 1 else _produced(tokenizer, each, ids)
        for each, ids in groups.items()
    }


def _produced(tokenizer: PreTrainedTokenizerBase, own: bytes, ids: Sequence[int]) -> int:
    """The one of some equal tokens that the tokenizer produces for their text, or the lowest."""
    text = own.decode(errors="replace")
    for before in BEFORE:
        made = set(ids).intersection(encoded(tokenizer, before + text))
        if len(made) == 1:
            return made.pop()
    return min(ids)
