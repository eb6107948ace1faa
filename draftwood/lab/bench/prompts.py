"""Reads and checks prompt sets.

:mod:`draftwood.lab.bench.sources` reads rows, :mod:`draftwood.lab.bench.views` makes rows of rows,
:mod:`draftwood.lab.bench.formats` makes prompts of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats import entries
from draftwood.lab.bench.formats._entry import Entry, SourceRow
from draftwood.lab.bench.sources import Source
from draftwood.lab.bench.views import files as files_of
from draftwood.lab.bench.views import load, named
from draftwood.lab.text import check_text


@dataclass(frozen=True)
class Prompt:
    """A prompt.

    Attributes:
        id: unique over all sets of a run.
        task: kind of prompt.
        set: name of the published set, or of the file without extension.
        turns: the user's turns; one for a plain prompt.
        dialogue: whether the row has ``turns``.
        completion: whether the text is to be continued, and is no request to a chat model.
    """

    id: str
    task: str
    set: str
    turns: tuple[str, ...]
    dialogue: bool = False
    completion: bool = False


def sources(names: str) -> tuple[Source, ...]:
    """The sources in a comma-separated list."""
    return tuple(named(name) for name in names.split(",") if name)


def files(names: str | None) -> list[Path]:
    """The files that the sources in a comma-separated list are read from; None: no list."""
    return [file for source in sources(names or "") for file in files_of(source)]


def read(paths: Sequence[Source], limit: int | None = None) -> list[Prompt]:
    """Read the prompts of all sources, in order.

    Args:
        paths: the sets.
        limit: most prompts per set, evenly spaced, so that a file ordered by task is sampled across
            tasks.

    Raises:
        DraftwoodError: a source cannot be read or has no prompt, a row is not a prompt or its text
            is no valid Unicode (the message has its location), or an id or a set's name occurs
            twice.
    """
    found: list[Prompt] = []
    seen: dict[str, str] = {}
    sets: dict[str, Source] = {}
    for source in paths:
        table = load(source)
        if not table.rows:
            raise DraftwoodError(f"{source} has no prompts: write one JSON object per line")
        set_name, members = entries(table.rows, table.name)
        if set_name in sets:
            raise DraftwoodError(
                f"{sets[set_name]} and {source} are both set {set_name!r}: put them into one file, "
                "or rename one file"
            )
        sets[set_name] = source
        _check(table.rows, members, seen)
        prompts = [Prompt(set=set_name, **vars(member)) for member in members]
        found += prompts if limit is None else evenly(prompts, limit)
    if not found:
        raise DraftwoodError("no prompts: name at least one file or dataset")
    return found


def check_count(option: str, wanted: int, prompts: int) -> None:
    """Refuse more requests at a time than there are prompts: so many never run.

    Raises:
        DraftwoodError: there are fewer prompts.
    """
    if wanted > prompts:
        raise DraftwoodError(
            f"{option} has {wanted}, and there are only {prompts} prompts: give at most {prompts}, "
            "or more prompts"
        )


def evenly(members: Sequence[Prompt], count: int) -> list[Prompt]:
    """At most ``count`` members, evenly spaced, with the first one."""
    n = len(members)
    return [members[i * n // count] for i in range(count)] if count < n else list(members)


def _check(rows: Sequence[SourceRow], members: Sequence[Entry], seen: dict[str, str]) -> None:
    for row, member in zip(rows, members, strict=True):
        for text in (member.id, member.task, *member.turns):
            check_text(text, f"{row.where}: the prompt")
        if member.id in seen:
            raise DraftwoodError(
                f"{row.where}: id {member.id!r} is taken by {seen[member.id]}: ids must be unique"
            )
        seen[member.id] = row.where
