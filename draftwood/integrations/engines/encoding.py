"""What is read of an engine's tokenizer: token ids of text, and the digest of its vocabulary."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.models.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)


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


def vocabulary_of(method: Method, tokenizer: Callable[[], Any]) -> str:
    """The digest of the engine's vocabulary, where the method reads a file that was made with one.

    Args:
        method: of the engine's drafts.
        tokenizer: as in :func:`encoding`.

    Returns:
        The digest; empty if there is no such file, or no tokenizer that tells its vocabulary.
    """
    if not files_of(method, "file", "table"):
        return ""
    found = tokenizer()
    if not hasattr(found, "get_vocab"):
        return ""
    try:
        return vocabulary_digest(found)
    except Exception as error:  # noqa: BLE001 - tokenizers of many kinds
        logger.warning("whether files are of this tokenizer cannot be told: %s", error)
        return ""


def files_of(method: Method, *named: str) -> list[str]:
    """Files that the method's drafters are given by settings of these names."""
    specs = method.drafters.values()
    return [str(path) for spec in specs for name in named if (path := getattr(spec, name, None))]
