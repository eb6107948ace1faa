"""The file that keeps a memory: a line of JSON about the vocabulary, then one for each text.

A text's line is on the disk before the next one is written. Half a line at the end of the file is
left out. A new file can be read by its owner alone, as it holds what was asked and answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.errors import DraftwoodError
from draftwood.files import (
    PRIVATE,
    Count,
    append,
    check_writable,
    decode,
    encode,
    write_bytes,
)

_FORMAT = "draftwood memory 1"
LONGEST = 2
"""A file with more than so many times the tokens that are remembered is written anew."""


@dataclass(frozen=True)
class _About:
    """The first line.

    Attributes:
        format: the file's.
        vocabulary: digest of the tokens and their ids; empty: unknown.
        vocab_size: of the model.
    """

    format: str
    vocabulary: str
    vocab_size: Count


class Journal:
    """The file of a memory.

    Args:
        path: the file, which need not exist.
        vocabulary: digest of the tokens and their ids; empty: unknown.
        vocab_size: of the model.

    Attributes:
        path: the file itself, if a link was named: the link stays when the file is written anew.
    """

    def __init__(self, path: str, vocabulary: str, vocab_size: int) -> None:
        self.path = Path(path).resolve()
        self._about = _About(_FORMAT, vocabulary, vocab_size)

    def read(self, memory: Namespaces) -> int:
        """Remember the texts of the file, and make one if there is none.

        Returns:
            The tokens that the file has then.

        Raises:
            DraftwoodError: it cannot be written, is no such file, or is of another vocabulary.
        """
        check_writable(self.path)
        if not self.path.exists():
            self.replace([])
            return 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._check(whole)
        total = 0
        for namespace, tokens in self._texts(whole[1:]):
            memory.add(tokens, namespace)
            total += len(tokens)
        if len(whole) < len(lines) or total > LONGEST * memory.size_of_own:
            self.replace(memory.pieces())
            total = memory.size_of_own
        return total

    def check(self) -> None:
        """Check that the file, if there is one, is of this vocabulary.

        Raises:
            DraftwoodError: it is no such file, or is of another vocabulary.
        """
        if self.path.exists():
            with self.path.open("rb") as file:
                self._check([file.readline()])

    def write(self, texts: Sequence[Sequence[int]], namespace: str) -> None:
        """Write what was added to a memory, at the end of the file.

        A file that was deleted meanwhile begins anew.

        Raises:
            OSError: it cannot be written.
        """
        lines = [_text_line(namespace, text) for text in texts]
        if lines and not self.path.exists():
            lines.insert(0, self._first)
        if lines:
            append(self.path, b"".join(lines), PRIVATE)

    def replace(self, texts: Sequence[tuple[str, NDArray[np.int32]]]) -> None:
        """Write the file anew, at once, with these namespaces and texts.

        Raises:
            OSError: it cannot be written; it is as it was before.
        """
        lines = [_text_line(namespace, text.tolist()) for namespace, text in texts]
        write_bytes(self.path, b"".join([self._first, *lines]), PRIVATE)

    @property
    def _first(self) -> bytes:
        return _line(encode(self._about))

    def _check(self, lines: Sequence[bytes]) -> None:
        try:
            found = decode(_About, json.loads(lines[0]))
        except (DraftwoodError, ValueError, IndexError) as error:
            raise DraftwoodError(
                f"{self.path} is no memory of Draftwood: name another file"
            ) from error
        own = self._about
        other = found.vocabulary and own.vocabulary and found.vocabulary != own.vocabulary
        if found.format != own.format or found.vocab_size != own.vocab_size or other:
            raise DraftwoodError(
                f"{self.path} is the memory of a model with another vocabulary, or of another "
                "version of Draftwood: name another file"
            )

    def _texts(self, lines: Sequence[bytes]) -> Iterator[tuple[str, list[int]]]:
        """Namespace and tokens of each line."""
        for number, line in enumerate(lines, start=2):
            try:
                plain = json.loads(line)
                namespace, tokens = plain["namespace"], plain["tokens"]
                ids = np.array(tokens)  # not by `decode`, which looks at one number after another
                right = isinstance(namespace, str) and ids.ndim == 1 and ids.dtype.kind == "i"
                right = right and bool(((ids >= 0) & (ids < self._about.vocab_size)).all())
            except (ValueError, TypeError, KeyError):
                right = False
            if not right:
                raise DraftwoodError(
                    f"{self.path}, line {number} is damaged: delete the line, or the file"
                )
            yield namespace, tokens


def _text_line(namespace: str, tokens: Sequence[int]) -> bytes:
    return _line({"namespace": namespace, "tokens": list(tokens)})


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
