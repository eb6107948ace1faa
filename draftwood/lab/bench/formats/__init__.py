"""Formats of published prompt sets; each format is a module here, with a constant ``FORMAT``.

A set is recognised by the keys of its rows, not by its file name.
"""

from collections.abc import Sequence
from functools import cache

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow
from draftwood.methods import registry


@cache
def formats() -> dict[str, Format]:
    """All formats by name, sorted."""
    return {name: registry.part(__name__, name, "FORMAT") for name in registry.parts(__name__)}


def entries(rows: Sequence[SourceRow], source_name: str) -> tuple[str, list[Entry]]:
    """Name of the set and its prompts, in order.

    Args:
        rows: all rows of one source, at least one; the first one decides the format.
        source_name: name of the file or dataset, for sets that have no name of their own.

    Raises:
        DraftwoodError: no format fits a row, a row has another format than the first one, or a
            member is invalid; the message begins with the row's location.
    """
    name = recognise(rows[0])
    form = formats()[name]
    for row in rows:
        if not form.knows(row.values):
            raise DraftwoodError(_misfit(row, name))
    set_name = form.set_name(rows, source_name)
    return set_name, [form.entry(row, set_name) for row in rows]


def recognise(row: SourceRow) -> str:
    """Name of the format that fits a row.

    Raises:
        DraftwoodError: no format fits, or more than one.
    """
    found = [name for name, form in formats().items() if form.knows(row.values)]
    found = [name for name in found if formats()[name].overrides] or found
    if not found:
        raise DraftwoodError(f"{row.where}: no format has {_keys(row)}: known are {_known()}")
    if len(found) > 1:
        raise DraftwoodError(
            f"{row.where}: this is {' and '.join(found)} at once: leave out the keys of one"
        )
    return found[0]


def _misfit(row: SourceRow, name: str) -> str:
    form = formats()[name]
    missing = [key for key in form.required if key not in row.values]
    wrong = f"{missing[0]!r} is missing among {_keys(row)}" if missing else f"found {_keys(row)}"
    return (
        f"{row.where}: {wrong}: the rows before are {name} ({form.shape}), and a set has one "
        f"format; known are {_known()}"
    )


def _keys(row: SourceRow) -> str:
    return "the keys " + (", ".join(sorted(map(str, row.values))) or "(none)")


def _known() -> str:
    return "; ".join(f"{name} ({form.shape})" for name, form in formats().items())
