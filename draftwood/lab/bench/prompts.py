"""Reads prompt sets, checked before any model is loaded.

A source is a file or a dataset of the Hugging Face Hub. What its rows look like is the business of
:mod:`draftwood.lab.bench.formats`; where they come from that of
:mod:`draftwood.lab.bench.prompt_files` and :mod:`draftwood.lab.bench.hub`. Knows nothing of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.lab.bench import hub, prompt_files
from draftwood.lab.bench.formats import entries
from draftwood.lab.bench.formats._entry import Entry, Row

Source = Path | str
"""A file, or the name of a dataset: ``hf:OWNER/NAME[:CONFIG][:SPLIT]``."""


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: unique over all sets of a run.
        task: what kind of prompt it is.
        set: name of a published set, else of the file it came from, without the extension.
        turns: what the user says, turn by turn; one for a plain prompt.
        dialogue: whether it was given as ``turns``.
    """

    id: str
    task: str
    set: str
    turns: tuple[str, ...]
    dialogue: bool = False


def sources(names: str) -> tuple[Source, ...]:
    """The sources in a comma-separated list."""
    return tuple(n if n.startswith(hub.PREFIX) else Path(n) for n in names.split(",") if n)


def read(paths: Sequence[Source], limit: int | None = None) -> list[Prompt]:
    """The prompts of all sources, in order.

    Args:
        paths: the sets.
        limit: most prompts of each set; they are taken evenly spaced, so that a file ordered by
            task is sampled across its tasks.

    Raises:
        DraftwoodError: a source cannot be read or holds no prompt, a row is not a prompt (the
            message has its place), or an id or a set's name occurs twice.
    """
    found: list[Prompt] = []
    seen: dict[str, str] = {}
    sets: dict[str, Source] = {}
    for source in paths:
        rows, source_name = _rows(source)
        if not rows:
            raise DraftwoodError(f"{source} holds no prompts: write one JSON object a line")
        set_name, members = entries(rows, source_name)
        if set_name in sets:
            raise DraftwoodError(
                f"{sets[set_name]} and {source} are both set {set_name!r}: put them into one file, "
                "or rename one if sets are named like files"
            )
        sets[set_name] = source
        _check_ids(rows, members, seen)
        prompts = [Prompt(m.id, m.task, set_name, m.turns, m.dialogue) for m in members]
        found += prompts if limit is None else evenly(prompts, limit)
    if not found:
        raise DraftwoodError("no prompts: name at least one file or dataset")
    return found


def evenly(members: Sequence[Prompt], count: int) -> list[Prompt]:
    """At most ``count`` members, evenly spaced, the first one included."""
    n = len(members)
    return [members[i * n // count] for i in range(count)] if count < n else list(members)


def origin(source: Source) -> dict[str, object]:
    """What is recorded of a source that was read: its name and a digest of its content."""
    return prompt_files.origin(Path(source)) if _is_file(source) else hub.origin(str(source))


def _check_ids(rows: Sequence[Row], members: Sequence[Entry], seen: dict[str, str]) -> None:
    for row, member in zip(rows, members, strict=True):
        if member.id in seen:
            raise DraftwoodError(
                f"{row.where}: id {member.id!r} is taken by {seen[member.id]}: ids must be unique"
            )
        seen[member.id] = row.where


def _rows(source: Source) -> tuple[list[Row], str]:
    if _is_file(source):
        path = Path(source)
        return prompt_files.rows(path), prompt_files.name(path)
    return hub.rows(str(source)), hub.name(str(source))


def _is_file(source: Source) -> bool:
    return not str(source).startswith(hub.PREFIX)
