"""What a draft model with another tokenizer reads for the target's tokens.

A prompt's text is encoded anew, so that the draft model reads it as it is used to. A generated
token is read by itself: as the equal token of the draft model, or else as the tokens that its text
has there. So the draft model's context may have another length than the target's.

A token may be a part of a character. If the draft model has tokens for its bytes, it reads those.
Else the bytes are held until the character is complete. Bytes that it cannot read are left out. All
this changes what is drafted, never what is generated.
"""

import codecs
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from draftwood.engine.intersection import Intersection
from draftwood.engine.token_bytes import BEFORE, Tokens
from draftwood.tree import TreeBuilder

_CHARACTER: Final = 4
"""Most bytes of a character."""


class TokenTranslation:
    """A :class:`draftwood.protocols.Translation` by the bytes of tokens.

    Args:
        target: the target's tokens.
        draft: the draft model's.
        found: the tokens that both have.
    """

    def __init__(self, target: Tokens, draft: Tokens, found: Intersection) -> None:
        self._target, self._draft, self._found = target, draft, found
        self._longest = max(map(len, draft.id_of), default=0)
        self._beginning = _beginning(draft)
        self._spaces = _space(target), _space(draft)
        self._read: dict[bytes, tuple[list[int], bytes]] = {}

    @property
    def to_target(self) -> NDArray[np.int64]:
        """See :attr:`draftwood.protocols.Translation.to_target`."""
        return self._found.to_target

    @property
    def note(self) -> str:
        """See :attr:`draftwood.protocols.Translation.note`."""
        found = self._found
        return (
            f"proposes {found.shared} of the target's {found.target} tokens "
            f"({found.shared / found.target:.1%}), which are {found.shared / found.draft:.1%} of "
            "its own"
        )

    def begin(self, tokens: Sequence[int]) -> tuple[list[int], bytes]:
        """See :meth:`draftwood.protocols.Translation.begin`."""
        ids: list[int] = []
        held, first = b"", True
        for has_text, group in groupby(tokens, self._target.bytes_of.__contains__):
            piece = [*group]
            found, held = self._text(piece, first) if has_text else self.read(piece)
            ids += found
            first = first and not has_text
        if ids[: len(self._beginning)] != self._beginning:
            ids = [*self._beginning, *ids]
        return ids or [self._blank()], held

    def read(self, tokens: Sequence[int], held: bytes = b"") -> tuple[list[int], bytes]:
        """See :meth:`draftwood.protocols.Translation.read`."""
        ids: list[int] = []
        for token in tokens:
            own, text = self._found.of_target.get(token), self._target.bytes_of.get(token)
            if own is not None:
                ids.append(own)
                held = b""
            elif text is None:
                held = b""
            else:
                found, held = self._pieces(held + text)
                ids += found
        return ids, held

    def depths(self, tree: TreeBuilder) -> Sequence[int]:
        """See :meth:`draftwood.protocols.Translation.depths`."""
        found = [0]
        for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
            found.append(found[parent] + len(self.read([token])[0]))
        return found

    def _blank(self) -> int:
        """What is read where a prompt has nothing that the draft model could read."""
        found = self._draft.tokenizer
        known = (found.bos_token_id, found.eos_token_id)
        return next((each for each in known if each in self._draft.special), 0)

    def _text(self, tokens: Sequence[int], first: bool) -> tuple[list[int], bytes]:
        """The draft tokens of a piece of a prompt; ``first``: the text begins with it."""
        text = self._target.joined(tokens)
        found = None
        if first:
            # Tokenizers that add a space to the beginning of a text have it in its first token.
            ours, theirs = self._spaces
            text = text.removeprefix(ours)
            found = self._encoded(text, "", theirs + text)
        if found is None:
            found = self._encoded_inside(text)
        return self.read(tokens) if found is None else (found, b"")

    def _pieces(self, text: bytes) -> tuple[list[int], bytes]:
        """The draft tokens of a text inside another one, and the bytes that are held."""
        if text not in self._read:
            found = self._encoded_inside(text)
            self._read[text] = self._spelt(text) if found is None else (found, b"")
        return self._read[text]

    def _encoded_inside(self, text: bytes) -> list[int] | None:
        """The draft tokens of a text inside another one, if the tokenizer has them."""
        tried = (self._encoded(text, before, text) for before in BEFORE)
        return next((found for found in tried if found is not None), None)

    def _encoded(self, text: bytes, before: str, wanted: bytes) -> list[int] | None:
        """The last tokens of ``before`` and a text, which are the bytes that are wanted.

        None if there are no such tokens: the text has half a character, or the tokenizer changes
        texts, has no token for a character, or takes a part of it for a special token.
        """
        try:
            ids = self._draft.encode(before + text.decode())
        except UnicodeDecodeError:
            return None
        count, length = 0, 0
        while length < len(wanted) and count < len(ids):
            count += 1
            each = self._draft.bytes_of.get(ids[-count])
            if each is None:
                return None
            length += len(each)
        own = ids[len(ids) - count :]
        return own if self._draft.joined(own) == wanted else None

    def _spelt(self, text: bytes) -> tuple[list[int], bytes]:
        """A text by the longest draft tokens from its beginning on, and the bytes that are held."""
        ids: list[int] = []
        at = 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self._draft.id_of), at)
            if end > at:
                ids.append(self._draft.id_of[text[at:end]])
                at = end
            elif _unfinished(text[at:]):
                break
            else:
                at += 1
        return ids, text[at:]


def _unfinished(text: bytes) -> bool:
    """Whether a text is the beginning of one character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return len(text) < _CHARACTER and not decoder.decode(text)


def _beginning(tokens: Tokens) -> list[int]:
    """The special tokens that a tokenizer puts before a text."""
    whole: list[int] = tokens.tokenizer("a")["input_ids"]
    return whole[: next((i for i, each in enumerate(whole) if each in tokens.bytes_of), 0)]


def _space(tokens: Tokens) -> bytes:
    """The space that a tokenizer adds to the beginning of a text, or nothing."""
    return b" " if tokens.joined(tokens.encode("a")) == b" a" else b""
