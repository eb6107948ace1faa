"""Draftwood's format: ``id``, ``task`` and either ``prompt`` or ``turns``.

A ``prompt`` is a text to be continued if ``completion`` is true, or without that member if the task
ends in ``completion`` or ``continuation``. Other keys are ignored, so that a published row can be
extended with these. The set has the name of its source.
"""

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, text, texts

_CONTINUED = ("completion", "continuation")


def _entry(row: SourceRow, _set_name: str) -> Entry:
    name, task = text(row, "id"), text(row, "task")
    if ("prompt" in row.values) == ("turns" in row.values):
        raise DraftwoodError(f"{row.where}: give either 'prompt' or 'turns'")
    if "turns" in row.values:
        return Entry(name, task, texts(row, "turns"), dialogue=True)
    completion = row.values.get("completion", task.endswith(_CONTINUED))
    if not isinstance(completion, bool):
        raise DraftwoodError(f"{row.where}: 'completion' must be true or false")
    return Entry(name, task, (text(row, "prompt"),), dialogue=False, completion=completion)


FORMAT = Format(
    required=("id", "task"),
    shape="id, task, prompt or turns",
    entry=_entry,
    set_name=lambda _, source_name: source_name,
    overrides=True,
)
