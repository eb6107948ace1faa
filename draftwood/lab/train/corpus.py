"""Training text on disk, as documents and as arrays of tokens. Refuses to know about batches.

A corpus is a directory of ``<domain>.txt.gz`` files; every document ends with a
line holding ``<|endoftext|>``.
"""

import gzip
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.tokenizer import END_OF_TEXT

logger = logging.getLogger(__name__)

Tokens = NDArray[np.unsignedinteger[Any]]

_SEPARATOR = f"\n{END_OF_TEXT}\n"
_HELD_OUT = 0.005
_ENCODE_AT_ONCE = 256


@dataclass(frozen=True)
class Source:
    """One domain's file: name, path, compressed size in bytes and SHA-256 of the file."""

    domain: str
    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Domain:
    """One domain's tokens: a stream to train on and one held out.

    Every document is followed by the tokenizer's end of text, if it has one (0 in our own).
    """

    name: str
    train: Tokens
    held_out: Tokens


def find_sources(directory: Path) -> tuple[Source, ...]:
    """List the domains of a corpus in name order; DraftwoodError where there are none."""
    if not directory.is_dir():
        raise DraftwoodError(f"The data directory {directory} does not exist; pass --data.")
    paths = sorted(directory.glob("*.txt.gz"))
    if not paths:
        raise DraftwoodError(f"{directory} holds no *.txt.gz file; put one per domain there.")
    return tuple(
        Source(
            domain=path.name.removesuffix(".txt.gz"),
            path=path,
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in paths
    )


def read_documents(source: Source) -> list[str]:
    """Read a domain's documents in file order; DraftwoodError where there are fewer than two.

    Two is the least that leaves something to train on and something to hold out.
    """
    with gzip.open(source.path, "rt", encoding="utf-8", newline="") as file:
        documents = [text for text in file.read().split(_SEPARATOR) if text.strip()]
    if len(documents) < 2:
        raise DraftwoodError(
            f"{source.path} holds {len(documents)} document(s), two or more are needed; "
            f"end each with a line {END_OF_TEXT}."
        )
    return documents


def split_documents(documents: list[str]) -> tuple[list[str], list[str]]:
    """Split into documents to train on and those held out, the last 0.5 % of the text.

    Documents stay whole and at least one goes to either side.
    """
    wanted = _HELD_OUT * sum(len(text) for text in documents)
    count = 1
    while count < len(documents) - 1 and sum(map(len, documents[-count:])) < wanted:
        count += 1
    return documents[:-count], documents[-count:]


def sample_texts(
    sources: tuple[Source, ...], mixture: Mapping[str, float], characters: int, seed: int
) -> Iterator[str]:
    """Yield training documents at random, about ``characters`` in all, shared by ``mixture``.

    No domain gives more than it has. Long documents give one excerpt each, so that
    a few novels do not fill the sample.
    """
    excerpt = max(1000, characters // 1000)
    for index, source in enumerate(sources):
        documents, _ = split_documents(read_documents(source))
        rng = np.random.default_rng([seed, index])
        wanted = min(
            characters * mixture.get(source.domain, 0.0), sum(len(text) for text in documents)
        )
        given = 0
        while given < wanted:
            text = documents[int(rng.integers(len(documents)))]
            start = int(rng.integers(max(1, len(text) - excerpt)))
            yield text[start : start + excerpt]
            given += min(len(text), excerpt)


def load_domain(source: Source, tokenizer: PreTrainedTokenizerFast, cache: Path) -> Domain:
    """Return a domain's tokens, from ``cache`` where file and tokenizer are known there."""
    vocabulary = tokenizer.backend_tokenizer.to_str().encode()
    key = hashlib.sha256(source.sha256.encode() + vocabulary).hexdigest()[:16]
    paths = [cache / f"{source.domain}-{key}-{part}.npy" for part in ("train", "held_out")]
    if not all(path.is_file() for path in paths):
        logger.info("tokenising %s", source.path)
        parts = split_documents(read_documents(source))
        cache.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):
            _save(path, _encode(part, tokenizer))
    train, held = (np.load(path, mmap_mode="r") for path in paths)
    return Domain(name=source.domain, train=train, held_out=held)


def _encode(documents: list[str], tokenizer: PreTrainedTokenizerFast) -> Tokens:
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    kind = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    pieces: list[Tokens] = []
    for start in range(0, len(documents), _ENCODE_AT_ONCE):
        batch = documents[start : start + _ENCODE_AT_ONCE]
        for encoding in tokenizer.backend_tokenizer.encode_batch_fast(batch):
            pieces.append(np.asarray([*encoding.ids, *end], dtype=kind))
    return np.concatenate(pieces)


def _save(path: Path, tokens: Tokens) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, tokens)
    os.replace(partial, path)
