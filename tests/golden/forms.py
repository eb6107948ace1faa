"""The forms of golden files, and the check of a file of either form."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import decode, read_json
from tests.golden.comparison import Check
from tests.golden.spine_trees import check_spine_trees
from tests.golden.verifications import check_verifications

CHECKS: dict[str, Callable[[Mapping[str, Any]], list[Check]]] = {
    r"\bkinds\b": check_spine_trees,
    r"\b(end_prob|traversal_visit_order|ensembles)\b": check_verifications,
}
"""The check of each form, by words that only its ``format`` text, or else its keys, have."""


def check_file(path: str | Path) -> list[Check]:
    """Recompute every case of a file.

    Raises:
        DraftwoodError: the file cannot be read, or has neither form.
    """
    found = read_json(Path(path))
    try:
        file = decode(dict[str, Any], found)
        return _check_of(file)(file)
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}") from error
    except (ArithmeticError, LookupError, ValueError, RecursionError) as error:
        raise DraftwoodError(
            f"{path}: the values do not fit one another ({type(error).__name__}: {error})"
        ) from error


def _check_of(file: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Check]]:
    """The check that fits the words of ``format``, else the keys of the file's entries."""
    entries = {
        name: decode(tuple[Mapping[str, object], ...], file.get(name, []), name)
        for name in ("cases", "ensembles")
    }
    keys = [name for name, listed in entries.items() if listed]
    keys += [key for case in entries["cases"][:1] for key in case]
    for text in (str(file.get("format")), " ".join(keys)):
        named = [check for words, check in CHECKS.items() if re.search(words, text)]
        if keys and len(named) == 1:
            return named[0]
    raise DraftwoodError(
        'neither "format" nor the cases are those of spine trees (with "kinds") or of '
        'verifications (with "tree", or "ensembles"); give a golden file'
    )
