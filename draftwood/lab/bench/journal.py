"""The journal of a run: every finished job on the disk, so that a killed run can be resumed.

A file of JSON lines. The first line holds the facts that decide the run. Each later line is a
finished job with its runs and with the *part* of the run that finished it: date and load of its
process. A line is on the disk before the next job begins. A torn last line is dropped. The file
appears when the first job has finished.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import append, decode, encode, reason
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import Job

VERSION = 2
_SHOWN = 3
"""Most differences that a message names."""


def beside(output: Path) -> Path:
    """The journal of the run whose document goes to ``output``."""
    return output.with_suffix(".journal.jsonl")


@dataclass(frozen=True)
class _FirstLine:
    """The first line."""

    journal: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class _Finished:
    """A later line."""

    job: tuple[str, int, int, int]
    part: Mapping[str, Any]
    runs: tuple[Run, ...]


class Journal:
    """The journal of one run.

    Args:
        path: the file; None: nothing is stored.
        resume: continue the run of an existing file; without one, or if False, the run is new.

    Raises:
        DraftwoodError: there is a file and ``resume`` is False, or the file cannot be read.

    Attributes:
        runs: of the finished jobs, in order.
        done: keys of the finished jobs.
        parts: one entry for each process that finished a job, in order.
    """

    def __init__(self, path: Path | None, *, resume: bool = False) -> None:
        self._path = path
        self._head: _FirstLine | None = None
        self.runs: list[Run] = []
        self.done: set[tuple[str, int, int, int]] = set()
        self.parts: list[Mapping[str, Any]] = []
        if path is not None and path.exists():
            if not resume:
                raise DraftwoodError(
                    f"{path} is the journal of a run that did not end: add --resume to go on with "
                    "it, or delete the file to start anew"
                )
            self._read(path)

    def check(self, facts: Mapping[str, object]) -> None:
        """Refuse to continue another run.

        Args:
            facts: all or some of the facts that decide this run.

        Raises:
            DraftwoodError: a fact differs from the journal's; the message names it.
        """
        if self._head is None:
            return
        wrong = [
            found
            for key, value in encode(facts).items()
            for found in differences(self._head.facts.get(key), value, key)
        ]
        if wrong:
            more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
            raise DraftwoodError(
                f"{self._path} is of another run: {'; '.join(wrong[:_SHOWN])}{more}. Repeat the "
                "command that began it, with --resume added, or delete the file"
            )

    def add(
        self, job: Job, runs: Sequence[Run], facts: Mapping[str, Any], part: Mapping[str, Any]
    ) -> None:
        """Append a finished job; its line is on the disk on return.

        Raises:
            OSError: the line cannot be written.
        """
        if self._path is None:
            return
        lines: list[object] = [_Finished(job.key, part, tuple(runs))]
        if self._head is None:
            self._head = _FirstLine(VERSION, encode(facts))
            lines.insert(0, self._head)
        try:
            append(self._path, b"".join(json.dumps(encode(x)).encode() + b"\n" for x in lines))
        except OSError as error:
            raise OSError(
                f"{reason(error)}; make room and repeat the command with --resume added"
            ) from error

    def remove(self) -> None:
        """Delete the file, if there is one: the document holds everything."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        try:
            raw = path.read_bytes()
            whole = raw[: raw.rfind(b"\n") + 1]
            os.truncate(path, len(whole))
        except OSError as error:
            raise DraftwoodError(f"cannot read {path}: {error.strerror}") from error
        try:
            for number, line in enumerate(whole.splitlines()):
                plain = json.loads(line)
                if number == 0:
                    self._head = decode(_FirstLine, plain, "line 1")
                    if self._head.journal != VERSION:
                        raise DraftwoodError(f"it has version {self._head.journal}, not {VERSION}")
                else:
                    job = decode(_Finished, plain, f"line {number + 1}")
                    self.done.add(job.job)
                    self.runs += job.runs
                    self.parts += [job.part] if job.part not in self.parts else []
        except (DraftwoodError, ValueError) as error:
            raise DraftwoodError(
                f"{path} is damaged or no journal of this version ({error}): delete it to "
                "start anew"
            ) from error


def differences(recorded: object, now: object, name: str) -> list[str]:
    """One clause for each value in which two plain values differ, with its dotted name."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        return [
            found
            for key in {**recorded, **now}
            for found in differences(recorded.get(key), now.get(key), f"{name}.{key}")
        ]
    if recorded == now:
        return []
    return [f"{name} was {json.dumps(recorded)} and is {json.dumps(now)}"]
