"""Training text, as documents and as token arrays.

A corpus is a directory of ``<domain>.txt.gz`` files; every document ends with a line
``<|endoftext|>``.
"""

import gzip
import hashlib
import logging
import os
import zlib
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

SEPARATOR = f"\n{END_OF_TEXT}\n"
_HELD_OUT = 0.005
_ENCODE_AT_ONCE = 256


@dataclass(frozen=True)
class DomainFile:
    """File of a domain, with its compressed size in bytes and its SHA-256."""

    domain: str
    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Domain:
    """A domain's tokens, for training and held out.

    Every document is followed by the tokenizer's end-of-text token, if there is one.
    """

    name: str
    train: Tokens
    held_out: Tokens


def find_sources(directory: Path) -> tuple[DomainFile, ...]:
    """Domains of a corpus, in order of their names; DraftwoodError if there are none."""
    if not directory.is_dir():
        raise DraftwoodError(f"The data directory {directory} does not exist; pass --data.")
    paths = sorted(directory.glob("*.txt.gz"))
    if not paths:
        raise DraftwoodError(f"{directory} has no *.txt.gz file: put one per domain there.")
    return tuple(
        DomainFile(
            domain=path.name.removesuffix(".txt.gz"),
            path=path,
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in paths
    )


def read_documents(source: DomainFile) -> list[str]:
    """Read a domain's documents in file order.

    Raises:
        DraftwoodError: the file cannot be read, or has fewer than two: one is needed for training
            and one to be held out.
    """
    try:
        with gzip.open(source.path, "rt", encoding="utf-8", newline="") as file:
            documents = [text for text in file.read().split(SEPARATOR) if text.strip()]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DraftwoodError(
            f"cannot read {source.path}: {error}; write it anew, as gzipped UTF-8 text"
        ) from error
    if len(documents) < 2:
        raise DraftwoodError(
            f"{source.path} has {len(documents)} document(s), two or more are needed; "
            f"end each with a line {END_OF_TEXT}."
        )
    return documents


def split_documents(documents: list[str]) -> tuple[list[str], list[str]]:
    """Split documents into training documents and held-out ones, the last 0.5 % of the text.

    Documents stay whole; each part gets at least one.
    """
    wanted = _HELD_OUT * sum(len(text) for text in documents)
    count = 1
    while count < len(documents) - 1 and sum(map(len, documents[-count:])) < wanted:
        count += 1
    return documents[:-count], documents[-count:]


def sample_texts(
    sources: tuple[DomainFile, ...], mixture: Mapping[str, float], characters: int, seed: int
) -> Iterator[str]:
    """Random training documents, about ``characters`` in total, in the mixture's proportion.

    Long documents give one excerpt each, so that a few novels do not fill the sample.
    """
    excerpt = max(1000, characters // 1000)
    for index, source in enumerate(sources):
        if not mixture.get(source.domain):
            continue
        documents, _ = split_documents(read_documents(source))
        rng = np.random.default_rng([seed, index])
        wanted = min(characters * mixture[source.domain], sum(map(len, documents)))
        sampled = 0
        while sampled < wanted:
            text = documents[int(rng.integers(len(documents)))]
            start = int(rng.integers(max(1, len(text) - excerpt)))
            yield text[start : start + excerpt]
            sampled += min(len(text), excerpt)


def load_domain(source: DomainFile, tokenizer: PreTrainedTokenizerFast, cache: Path) -> Domain:
    """A domain's tokens, read from ``cache`` if this file and tokenizer are cached."""
    vocabulary = tokenizer.backend_tokenizer.to_str().encode()
    kind = b"one bos" if _adds_bos(tokenizer) else b""
    key = hashlib.sha256(source.sha256.encode() + vocabulary + kind).hexdigest()[:16]
    paths = [cache / f"{source.domain}-{key}-{part}.npy" for part in ("train", "held_out")]
    if not all(path.is_file() for path in paths):
        logger.info("tokenising %s", source.path)
        parts = split_documents(read_documents(source))
        cache.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):
            _save(path, _encode(part, tokenizer))
    train, held = (np.load(path, mmap_mode="r") for path in paths)
    return Domain(name=source.domain, train=train, held_out=held)


def _adds_bos(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether every text gets a token that begins it."""
    bos = tokenizer.bos_token_id
    return bos is not None and tokenizer.backend_tokenizer.encode("").ids[:1] == [bos]


def _encode(documents: list[str], tokenizer: PreTrainedTokenizerFast) -> Tokens:
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    kind = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    pieces: list[Tokens] = []
    adds_bos = _adds_bos(tokenizer)
    for start in range(0, len(documents), _ENCODE_AT_ONCE):
        batch = documents[start : start + _ENCODE_AT_ONCE]
        if adds_bos:  # a rendered chat has its own
            batch = [text.removeprefix(str(tokenizer.bos_token)) for text in batch]
        for encoding in tokenizer.backend_tokenizer.encode_batch_fast(batch):
            pieces.append(np.asarray([*encoding.ids, *end], dtype=kind))
    return np.concatenate(pieces)


def _save(path: Path, tokens: Tokens) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, tokens)
    os.replace(partial, path)
