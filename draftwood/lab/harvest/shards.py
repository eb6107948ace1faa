"""The work directory of a harvest: sums of one run of text in each file, which a new run reuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.files import encode, read_json, write_json
from draftwood.lab.alone import alone
from draftwood.lab.harvest.sums import Sums, entries_by_key, merged, read, write

_ENTRIES = 1 << 23
"""Successors that are merged at once: about 1 GB while they are sorted."""


@dataclass(frozen=True)
class WorkDirectory:
    """Files ``NUMBER.safetensors`` of sums, and ``harvest.json``, which says of what.

    Attributes:
        path: the directory.
    """

    path: Path

    def prepare(self, identity: Any) -> None:
        """Make the directory, begin in an empty one, or check that it is of the same harvest.

        Args:
            identity: all that the sums depend on; a value for :func:`draftwood.files.encode`.

        Raises:
            DraftwoodError: it is of another harvest, or of something else.
        """
        record = self.path / "harvest.json"
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            self.path.mkdir(exist_ok=True)
            write_json(record, identity)
        elif not record.is_file() or read_json(record) != encode(identity):
            raise DraftwoodError(
                f"{self.path} is not of this harvest, but of another model, text or setting: "
                "delete it, or name another directory with --work"
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one process at a time add sums.

        Raises:
            DraftwoodError: another process does.
        """
        with alone(self.path, "--work"):
            yield

    def shard(self, number: int) -> Path:
        """The file of a run of text."""
        return self.path / f"{number:05d}.safetensors"

    def save(self, number: int, sums: Sums) -> None:
        """Write the sums of a run of text."""
        write(self.shard(number), sums)

    def has(self, number: int) -> bool:
        """Whether the sums of a run of text are there."""
        return self.shard(number).is_file()

    def delete(self) -> None:
        """Delete the directory and all that is in it."""
        shutil.rmtree(self.path)


def merged_by_token(shards: Sequence[Path], vocab_size: int) -> Iterator[Sums]:
    """The sums of all shards, added, for runs of tokens: all pairs that end in them.

    Args:
        shards: files of sums, at least one.
        vocab_size: V, for the keys.
    """
    v = vocab_size
    counts = np.zeros(v, dtype=np.int64)
    for shard in shards:
        keys, lengths = entries_by_key(shard)
        counts += np.bincount(keys // (v + 1), lengths, minlength=v).astype(np.int64)
    runs = np.cumsum(counts) // _ENTRIES
    firsts = np.flatnonzero(np.diff(runs, prepend=-1))
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), v], strict=True):
        yield merged([read(shard, first * (v + 1), end * (v + 1)) for shard in shards])
