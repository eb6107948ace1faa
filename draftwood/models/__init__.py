"""Loads models and their tokenizers by name, directory or hub id."""

from draftwood.models.fingerprint import fingerprint_of, vocabulary_digest
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
