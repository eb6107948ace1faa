"""The forms of golden files, and the check of a file of either form."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import decode, read_json
from tests.golden.cases import File
from tests.golden.entries import Check
from tests.golden.spine_trees import check_spine_trees
from tests.golden.verifications import check_verifications

NAMED = {
    check_spine_trees: re.compile(r"\bkinds\b"),
    check_verifications: re.compile(r"\bend_prob\b|\bgolden_file\b"),
}
"""Words that only the ``format`` text of files of one form has."""


@dataclass(frozen=True)
class Form:
    """The text that describes a file."""

    format: str


def check_file(path: str | Path) -> list[Check]:
    """Recompute every case of a file.

    Raises:
        DraftwoodError: the file cannot be read, or has neither form.
    """
    try:
        found = read_json(Path(path))
        whole = decode(Mapping[str, Any], found)  # type: ignore[type-abstract]
        file = decode(File, {"cases": [], "ensembles": [], **whole})
        text = decode(Form, {"format": "", **whole}).format
        return _check_of(file, text)(file)
    except (OverflowError, RecursionError) as error:
        raise DraftwoodError(f"{path}: a value is too large ({error})") from error
    except DraftwoodError as error:
        named = str(path) in str(error)
        raise error if named else DraftwoodError(f"{path}: {error}") from error


def _check_of(file: File, text: str) -> Callable[[File], list[Check]]:
    """The check that fits the words of ``format``, else the keys of the first case."""
    named = [check for check, words in NAMED.items() if words.search(text)]
    if len(named) == 1:
        return named[0]
    if file.cases and "kinds" in file.cases[0]:
        return check_spine_trees
    if file.ensembles or (file.cases and "tree" in file.cases[0]):
        return check_verifications
    raise DraftwoodError(
        'neither "format" nor the cases are those of spine trees (with "kinds") or of '
        'verifications (with "tree", or "ensembles"); give a golden file'
    )
