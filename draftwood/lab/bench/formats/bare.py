"""Rows with ``prompt`` and, optionally, ``id`` or ``task``; also lines of plain text.

Default id: the set's name and the row's number, from 1. Default task: the set's name, which is the
name of its source.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, Values, text

_KEYS = frozenset(("id", "task", "prompt"))


def _fits(values: Values) -> bool:
    return isinstance(values["prompt"], str) and set(values) < _KEYS


def _entry(row: SourceRow, set_name: str) -> Entry:
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
