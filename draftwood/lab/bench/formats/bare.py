"""Rows with a prompt and no more: ``prompt``, with ``id`` or ``task`` if they like.

What is left out is filled in: the id is the set's name and the place of the prompt in it, from 1,
the task is the name of the set, which is named like its source. A line of plain text is read as
such a row.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, Row, Values, text

_KEYS = frozenset(("id", "task", "prompt"))


def _fits(values: Values) -> bool:
    return isinstance(values["prompt"], str) and set(values) < _KEYS


def _entry(row: Row, set_name: str) -> Entry:
    name = text(row, "id") if "id" in row.values else f"{set_name}/{row.number + 1}"
    task = text(row, "task") if "task" in row.values else set_name
    return Entry(name, task, (text(row, "prompt"),), dialogue=False)


FORMAT = Format(
    required=("prompt",),
    shape="prompt alone",
    entry=_entry,
    set_name=lambda _, source_name: source_name,
    fits=_fits,
)
