"""The forms of golden files, and the check of a file of either form."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from draftwood.errors import DraftwoodError
from tests.golden.entries import Check, Entry
from tests.golden.spine_trees import check_spine_trees
from tests.golden.verifications import check_verifications

NAMED = {
    check_spine_trees: re.compile(r"\bkinds\b"),
    check_verifications: re.compile(r"\bend_prob\b|\bgolden_file\b"),
}
"""Words that only the ``format`` text of files of one form has."""


def check_file(path: str | Path) -> list[Check]:
    """Recompute every case of a file.

    Raises:
        DraftwoodError: the file cannot be read, or has neither form.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DraftwoodError(f"cannot read {path} as JSON ({error}); give a golden file") from error
    whole = Entry(document, str(path))
    try:
        return _check_of(whole)(whole)
    except OverflowError as error:
        raise DraftwoodError(f"{path}: a number is too large ({error})") from error


def _check_of(whole: Entry) -> Callable[[Entry], list[Check]]:
    """The check that fits the words of ``format``, else the keys of the first case."""
    text = whole.text("format") if "format" in whole else ""
    named = [check for check, words in NAMED.items() if words.search(text)]
    if len(named) == 1:
        return named[0]
    cases = whole.entries("cases")
    if cases and "kinds" in cases[0]:
        return check_spine_trees
    if whole.entries("ensembles") or (cases and "tree" in cases[0]):
        return check_verifications
    raise DraftwoodError(
        f'{whole.where}: neither "format" nor the cases are those of spine trees (with "kinds") or '
        'of verifications (with "tree", or "ensembles"); give a golden file'
    )
