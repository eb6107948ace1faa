"""The digest of a tokenizer's vocabulary. Imports no torch: engines' plugins read it, too."""

from __future__ import annotations

import hashlib
from typing import Protocol


class HasVocabulary(Protocol):
    """A tokenizer, as far as it is read here."""

    def get_vocab(self) -> dict[str, int]:
        """Its tokens and their ids."""


def vocabulary_digest(tokenizer: HasVocabulary) -> str:
    """A digest of a tokenizer's tokens and their ids; a slow and a fast one of a model agree."""
    pairs = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:32]
