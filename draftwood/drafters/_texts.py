"""Files of text that a drafter begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from draftwood.errors import DraftwoodError

_LARGEST = 1 << 20
"""Bytes of a file in a folder; larger ones are data, or made by programs."""


def check_texts(paths: Sequence[str]) -> None:
    """Check that files and folders are there, before a model is loaded that reads them.

    Raises:
        DraftwoodError: one of them is missing, or has an empty name.
    """
    for name in paths:
        if not name:
            raise DraftwoodError(
                f"{'+'.join(paths)!r} has a file without a name: leave out the '+' too many, or "
                "write '.' for the current directory"
            )
        _check_exists(Path(name))


def encoded_files(
    paths: Sequence[str], encode: Callable[[str], Sequence[int]]
) -> Iterator[Sequence[int]]:
    """Token ids of each file.

    Files of folders are taken in order of their names; hidden and large ones, and those that are no
    UTF-8 text, are left out.

    Args:
        paths: files and folders.
        encode: makes token ids of a text.

    Raises:
        DraftwoodError: there is no such file or folder, a named file is no text, or a folder holds
            none.
    """
    for name in paths:
        path = Path(name)
        if path.is_dir():
            texts = [text for text in map(_text, _files(path)) if text]
            if not texts:
                raise DraftwoodError(f"there is no file of text in the folder {path}")
            yield from map(encode, texts)
            continue
        _check_exists(path)
        text = _text(path)
        if text is None:
            raise DraftwoodError(f"{path} is no file of UTF-8 text that can be read")
        yield encode(text)


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise DraftwoodError(f"{path} does not exist: name files of text, or folders of them")


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.stat().st_size <= _LARGEST
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
