"""What has ended, job by job, on the disk: a run that was killed goes on from there.

A file of JSON lines. The first one says what decides the run; each later one is either a *part*
(when a process began and how busy the machine was then) or an ended *job* with its runs. A line is
on the disk before the next job begins, so that a process may be killed at any moment and loses one
job at most; a last line that was torn is dropped. The file appears when the first job has ended.

Knows nothing of how a run is made, and of what the things that decide it mean.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode, reason, write_text
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import Job

_SHOWN = 3
"""Most differences that a message names."""


def beside(output: Path) -> Path:
    """Where the journal of a run is kept whose document goes to ``output``."""
    return output.with_suffix(".journal.jsonl")


class Journal:
    """The journal of one run; :func:`begun` and :func:`continued` give one.

    Attributes:
        parts: of the processes so far, in order.
        done: keys of the jobs that have ended.
    """

    def __init__(self, path: Path, lines: Sequence[Mapping[str, Any]] = (), size: int = 0) -> None:
        self._path = path
        self._decides = lines[0]["decides"] if lines else None
        self._ended = [line for line in lines if "job" in line]
        self._size = size
        self._waiting: list[object] = []
        self.parts: list[dict[str, object]] = [line["part"] for line in lines if "part" in line]
        self.done = {tuple(line["job"]) for line in self._ended}

    def check(self, facts: Mapping[str, object]) -> None:
        """Refuse to go on with another run.

        Args:
            facts: some of what decides this one, or all of it.

        Raises:
            DraftwoodError: a fact differs from what the journal says; the message names it.
        """
        if self._decides is None:
            return
        wrong = [
            found
            for key, value in encode(facts).items()
            for found in differences(self._decides.get(key), value, key)
        ]
        if wrong:
            more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
            raise DraftwoodError(
                f"{self._path} is of another run: {'; '.join(wrong[:_SHOWN])}{more}. Repeat the "
                "command that began it, with --resume added, or delete the file"
            )

    def runs(self, prompts: Sequence[Prompt]) -> list[Run]:
        """The runs that have ended, in the order in which they did.

        Raises:
            DraftwoodError: a line is not what this version writes.
        """
        named = {prompt.id: prompt for prompt in prompts}
        try:
            return [_run(plain, named) for line in self._ended for plain in line["runs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self._path, error) from error

    def begin(self, decides: Mapping[str, object], part: Mapping[str, object]) -> None:
        """A process begins; this is written with the first job that it ends.

        Args:
            decides: what a process must agree on to go on with this run.
            part: when it began, and what the machine was like.
        """
        if self._decides is None:
            self._waiting.append({"decides": encode(decides)})
        self._waiting.append({"part": part})
        self.parts.append(dict(part))

    def add(self, job: Job, runs: Sequence[Run]) -> None:
        """Keep an ended job; it is on the disk on return.

        Raises:
            OSError: it cannot be written.
        """
        lines = [*self._waiting, {"job": job.key, "runs": [_plain(run) for run in runs]}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        try:
            self._append(text)
        except OSError as error:
            raise OSError(
                f"{reason(error)}; make room and repeat the command with --resume added"
            ) from error
        self._waiting.clear()
        self._size += len(text.encode())

    def _append(self, text: str) -> None:
        if not self._size:
            write_text(self._path, text)
        else:
            with self._path.open("r+b") as file:
                file.truncate(self._size)  # what is behind it was torn
                file.seek(0, os.SEEK_END)
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file, if there is one: the document holds everything now."""
        self._path.unlink(missing_ok=True)


def begun(path: Path) -> Journal:
    """The journal of a new run.

    Raises:
        DraftwoodError: there is one already.
    """
    if path.exists():
        raise DraftwoodError(
            f"{path} is the journal of a run that did not end: add --resume to go on with it, or "
            "delete the file to start anew"
        )
    return Journal(path)


def continued(path: Path) -> Journal:
    """The journal of a run that goes on; a new one if there is none.

    Raises:
        DraftwoodError: it cannot be read.
    """
    try:
        raw = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise DraftwoodError(f"cannot read {path}: {error.strerror}") from error
    *whole, torn = raw.split(b"\n")
    try:
        return Journal(path, [json.loads(line) for line in whole], len(raw) - len(torn))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


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


def _plain(run: Run) -> dict[str, object]:
    found = {f.name: encode(getattr(run, f.name)) for f in fields(run) if f.name != "prompt"}
    return {"prompt": run.prompt.id, **found}


def _run(plain: Mapping[str, Any], prompts: Mapping[str, Prompt]) -> Run:
    kinds = get_type_hints(Run)
    kept = [f.name for f in fields(Run) if f.name != "prompt"]
    made = {name: decode(kinds[name], plain[name]) for name in kept}
    return Run(prompt=prompts[plain["prompt"]], **made)


def _damaged(path: Path, error: Exception) -> DraftwoodError:
    what = f"{type(error).__name__}: {error}"
    return DraftwoodError(f"{path} is damaged or no journal ({what}): delete it to start anew")
