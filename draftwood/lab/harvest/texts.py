"""Reads the documents of text files."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.lab.text import check_text

_SEPARATOR = "<|endoftext|>"
_KINDS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Document:
    """A text and its name for messages: file, and number in it."""

    name: str
    text: str


@dataclass(frozen=True)
class TextSource:
    """A text file with its documents, in file order."""

    path: Path
    sha256: str
    documents: tuple[Document, ...]


def read_texts(paths: Sequence[Path]) -> list[TextSource]:
    """Read text files.

    A ``.txt`` file has documents that are separated by lines ``<|endoftext|>``; a ``.jsonl`` file
    has one JSON object with a member ``text`` in each line. Both may end in ``.gz``.

    Raises:
        DraftwoodError: a file is missing, damaged, of another kind or given twice, or there is no
            text in it.
    """
    found: dict[str, TextSource] = {}
    for path in paths:
        source = _read(path)
        if source.sha256 in found:
            raise DraftwoodError(
                f"{found[source.sha256].path} and {path} are the same text: give it once"
            )
        found[source.sha256] = source
    return list(found.values())


def _read(path: Path) -> TextSource:
    if not path.name.endswith(_KINDS):
        raise DraftwoodError(f"{path} is no text file: give {', '.join(_KINDS)}")
    try:
        content = path.read_bytes()
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        text = plain.decode()
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DraftwoodError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DraftwoodError(f"cannot read {path}: {error.strerror}") from error
    lines = path.name.removesuffix(".gz").endswith(".jsonl")
    texts = _json_texts(path, text) if lines else _separated(text)
    documents = tuple(
        Document(f"{path}, document {number}", each)
        for number, each in enumerate(texts, 1)
        if each.strip()
    )
    if not documents:
        raise DraftwoodError(f"{path} has no text")
    return TextSource(path, hashlib.sha256(content).hexdigest(), documents)


def _separated(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.replace("\r\n", "\n").split("\n"), _SEPARATOR]:
        if line == _SEPARATOR:
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)


def _json_texts(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DraftwoodError(f"{path}, line {number}, is not JSON: {error}") from error
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise DraftwoodError(f'{path}, line {number}, has no "text"')
            check_text(row["text"], f"{path}, line {number},")
            yield row["text"]
