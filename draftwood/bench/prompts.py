"""Reads prompt sets: JSON lines, checked before any model is loaded.

Knows nothing of tokens. A file is a set, named like the file; a line is an object with ``id``,
``task`` and either ``prompt`` (a text) or ``turns`` (what a user says, turn by turn). Other keys
are ignored.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: unique over all sets of a run.
        task: what kind of prompt it is.
        set: name of the file it came from, without the extension.
        turns: what the user says, turn by turn; one for a plain prompt.
        dialogue: whether it was given as ``turns``.
    """

    id: str
    task: str
    set: str
    turns: tuple[str, ...]
    dialogue: bool = False


def read(paths: Sequence[Path], limit: int | None = None) -> list[Prompt]:
    """The prompts of all files, in order.

    Args:
        paths: the sets.
        limit: most prompts of each set; they are taken evenly spaced, so that a file ordered by
            task is sampled across its tasks.

    Raises:
        DraftwoodError: a file cannot be read or holds no prompt, a line is not a prompt (the
            message has its number), or an id or a set's name occurs twice.
    """
    found: list[Prompt] = []
    seen: dict[str, str] = {}
    sets: dict[str, Path] = {}
    for path in paths:
        if path.stem in sets:
            raise DraftwoodError(
                f"{sets[path.stem]} and {path} are both set {path.stem!r}: rename one of them"
            )
        sets[path.stem] = path
        members = _read_set(path, seen)
        found += members if limit is None else evenly(members, limit)
    if not found:
        raise DraftwoodError("no prompts: name at least one file of JSON lines")
    return found


def evenly(members: Sequence[Prompt], count: int) -> list[Prompt]:
    """At most ``count`` members, evenly spaced, the first one included."""
    n = len(members)
    return [members[i * n // count] for i in range(count)] if count < n else list(members)


def _read_set(path: Path, seen: dict[str, str]) -> list[Prompt]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DraftwoodError(f"cannot read prompts from {path}: {error}") from error
    found: list[Prompt] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        prompt = _parse(line, path.stem, where)
        if prompt.id in seen:
            raise DraftwoodError(
                f"{where}: id {prompt.id!r} is taken by {seen[prompt.id]}: ids must be unique"
            )
        seen[prompt.id] = where
        found.append(prompt)
    if not found:
        raise DraftwoodError(f"{path} holds no prompts: write one JSON object a line")
    return found


def _parse(line: str, set_name: str, where: str) -> Prompt:
    try:
        item = json.loads(line)
    except json.JSONDecodeError as error:
        raise DraftwoodError(f"{where}: not a line of JSON: {error}") from error
    if not isinstance(item, dict):
        raise DraftwoodError(f"{where}: expected a JSON object with id, task and prompt or turns")
    for key in ("id", "task"):
        if not isinstance(item.get(key), str) or not item[key]:
            raise DraftwoodError(f"{where}: {key!r} is missing or not a text")
    if ("prompt" in item) == ("turns" in item):
        raise DraftwoodError(f"{where}: give either 'prompt' or 'turns'")
    turns = item["turns"] if "turns" in item else [item["prompt"]]
    if not isinstance(turns, list) or not turns or not all(_is_text(turn) for turn in turns):
        raise DraftwoodError(f"{where}: 'prompt' must be a text and 'turns' a list of texts")
    return Prompt(item["id"], item["task"], set_name, tuple(turns), dialogue="turns" in item)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
