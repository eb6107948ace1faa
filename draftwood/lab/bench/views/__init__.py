"""Views: prompt sets made from published sets, as ``VIEW:SET`` or ``VIEW:SET+SET``.

A view is one file here, with a constant ``VIEW``: a function from the rows of the sets to rows of
Draftwood's own format. It is deterministic and uses no random numbers: a row decides its prompt.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.bench import sources
from draftwood.lab.bench.formats._entry import SourceRow
from draftwood.lab.bench.sources import Source, SourceTable
from draftwood.methods import registry

View = Callable[[Sequence[SourceRow]], Iterable[dict[str, Any]]]


def named(text: str) -> Source:
    """The source of this name: a view, a dataset or a file."""
    return text if text.startswith(sources.PREFIX) or _view(text) else Path(text)


def files(source: Source) -> list[Path]:
    """The files that a source is read from: none of a dataset, those of its sets of a view."""
    if isinstance(source, Path):
        return [source]
    return [] if _view(source) is None else [f for each in _sets(source) for f in files(each)]


def load(source: Source) -> SourceTable:
    """The rows of a source; those of a view are made here.

    Raises:
        DraftwoodError: a set cannot be read, or the view finds nothing in it that it can use.
    """
    text = str(source)
    name = _view(text)
    if name is None:
        return sources.load(source)
    tables = [sources.load(each) for each in _sets(text)]
    make: View = registry.part(__name__, name, "VIEW")
    made = list(make([row for table in tables for row in table.rows]))
    if not made:
        raise DraftwoodError(f"{text} has no prompts: none of its rows suits the view {name!r}")
    lines = "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in made)
    origin = {
        "view": name,
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "of": [table.origin for table in tables],
    }
    rows = tuple(SourceRow(f"{text}, prompt {i + 1}", i, row) for i, row in enumerate(made))
    return SourceTable(name, rows, origin)


def _sets(view: str) -> list[Source]:
    return [named(each) for each in view.partition(":")[2].split("+")]


def _view(text: str) -> str | None:
    name, colon, _ = text.partition(":")
    return name if colon and name in registry.parts(__name__) else None
