"""Token ids of text, by an engine's tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from draftwood.errors import DraftwoodError


def encoding(tokenizer: Callable[[], Any]) -> Callable[[str], Sequence[int]]:
    """A function that makes token ids of a text, without special tokens.

    It raises :class:`DraftwoodError` if the engine has no tokenizer.

    Args:
        tokenizer: gives the engine's, or None: it has none. It is asked when there is a text,
            because an engine may have to load it.
    """

    def encode(text: str) -> Sequence[int]:
        found = tokenizer()
        if found is None:
            raise DraftwoodError(
                "a drafter is given files of text, and this engine runs without a tokenizer: let "
                "the engine load its tokenizer, or give no files, such as memory.text"
            )
        ids: Sequence[int] = found.encode(text, add_special_tokens=False)
        return ids

    return encode
