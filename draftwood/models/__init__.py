"""Loads models and their tokenizers by name, directory or hub id.

Importing this package loads no model code: names are resolved when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwood.models.fingerprint import fingerprint_of
    from draftwood.models.loading import (
        DTYPES,
        EMBEDDED,
        HEADS,
        Loaded,
        device_named,
        embedded,
        eos_of,
        load,
        load_quietly,
        location,
        origin_of,
        vocabulary_size,
    )
    from draftwood.models.vocabulary import vocabulary_digest

__all__ = [
    "DTYPES",
    "EMBEDDED",
    "HEADS",
    "Loaded",
    "device_named",
    "embedded",
    "eos_of",
    "fingerprint_of",
    "load",
    "load_quietly",
    "location",
    "origin_of",
    "vocabulary_digest",
    "vocabulary_size",
]

_HOMES = {"fingerprint_of": "fingerprint", "vocabulary_digest": "vocabulary"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'draftwood.models' has no attribute {name!r}", name=name)
    home = _HOMES.get(name, "loading")
    return getattr(importlib.import_module(f"draftwood.models.{home}"), name)
