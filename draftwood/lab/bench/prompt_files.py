"""Rows of a file: JSON lines, one JSON array or plain lines, all maybe gzipped, told by content.

A file whose first line is no JSON and does not begin like an object holds plain text, one prompt
a line.

Knows no format of prompts.
"""

import gzip
import hashlib
import json
import zlib
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import Row

_GZIP = b"\x1f\x8b"
"""The first bytes of every gzip file (RFC 1952, section 2.3.1)."""


def rows(path: Path) -> list[Row]:
    """All rows, in order; empty lines are passed over.

    Raises:
        DraftwoodError: the file cannot be read, is not JSON, or a row is no object; the message has
            the number of the line or item, from 1.
    """
    text = _text(path)
    if text.lstrip().startswith("["):
        return _items(path, text)
    return _plain(path, text) if _is_plain(text) else _lines(path, text)


def name(path: Path) -> str:
    """Name of the file without its extension, nor that of its compression."""
    return Path(path.name.removesuffix(".gz")).stem


def origin(path: Path) -> dict[str, object]:
    """What tells this file from another of its name."""
    return {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DraftwoodError(f"cannot read prompts from {path}: {error}") from error


def _is_plain(text: str) -> bool:
    first = next((line for line in text.split("\n") if line.strip()), "{")
    if first.lstrip().startswith("{"):
        return False
    try:
        json.loads(first)
    except json.JSONDecodeError:
        return True
    return False


def _plain(path: Path, text: str) -> list[Row]:
    split = (line.removesuffix("\r") for line in text.split("\n"))
    lines = [(n, line) for n, line in enumerate(split, start=1) if line.strip()]
    return [Row(f"{path}:{n}", i, {"prompt": line}) for i, (n, line) in enumerate(lines)]


def _lines(path: Path, text: str) -> list[Row]:
    found: list[Row] = []
    # Other line separators may stand inside a JSON text, so splitlines would cut it.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            item = json.loads(line)
        except json.JSONDecodeError as error:
            raise DraftwoodError(f"{where}: not a line of JSON: {error}") from error
        found.append(_row(item, where, len(found)))
    return found


def _items(path: Path, text: str) -> list[Row]:
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise DraftwoodError(f"{path}: begins like a JSON array and is none: {error}") from error
    return [_row(item, f"{path}, item {i + 1}", i) for i, item in enumerate(items)]


def _row(item: object, where: str, number: int) -> Row:
    if not isinstance(item, dict):
        raise DraftwoodError(f"{where}: expected a JSON object, one for each prompt")
    return Row(where, number, item)
