"""Which of several wordings a prompt gets: its row's id decides, whatever the limit of a run."""

import zlib
from collections.abc import Sequence
from typing import TypeVar

from draftwood.lab.bench.formats._entry import SourceRow, label

T = TypeVar("T")

_IDS = ("id", "task_id", "question_id")


def name_of(row: SourceRow) -> str:
    """The row's own id, or its number."""
    return next((label(row, key) for key in _IDS if key in row.values), str(row.number))


def choice(row: SourceRow, wordings: Sequence[T]) -> T:
    """One of the wordings, by the CRC of the row's id."""
    return wordings[zlib.crc32(name_of(row).encode()) % len(wordings)]
