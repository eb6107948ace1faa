"""The files of runs: how they are read, and what each says of itself.

Knows nothing of the page.
"""

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import click

from results_page.markdown import spanned

SCHEMA = 3

Run: TypeAlias = dict[str, Any]
"""A document of ``draftwood bench``, or what another script beside this package wrote."""
Runs: TypeAlias = dict[str, Run]
"""Runs by the names of their files."""


def load(path: Path) -> Run:
    """A file of a run: what ``draftwood bench`` wrote, or one of the scripts beside this one.

    Raises:
        ClickException: a bench document of another schema, whose figures mean something else.
    """
    run: Run = json.loads(path.read_text(encoding="utf-8"))
    if run.get("schema", SCHEMA) != SCHEMA:
        raise click.ClickException(
            f"{path} has schema {run['schema']}, and this script reads schema {SCHEMA}: run the "
            "benchmark again with this version of Draftwood"
        )
    return run


def provenance(run: Run) -> str:
    """Where a table's figures come from, in one line."""
    # Directories are the measuring machine's own business; names of files are not.
    facts = re.sub(r"/[\w./-]*/", "", json.dumps(run["provenance"], sort_keys=True))
    ended = "" if run.get("complete", True) else " (interrupted: it holds what had ended)"
    return f"<sub>`{facts}`{ended}</sub>"


def peers(run: Run) -> list[str]:
    """The methods that are other libraries' own."""
    return [name for name in run["methods"] if name.startswith(("hf", "llamacpp"))]


def cut(entry: dict[str, Any], name: str | None, *, loops: bool) -> dict[str, Any]:
    """The aggregates of one method: of all sets or one, with or without looping outputs."""
    chosen = entry if name is None else entry["by_set"][name]
    return chosen if loops else chosen["without_looping"]


def sample(run: Run) -> str:
    """How many prompts a run had, how many tokens they came to, and what is left without looping.

    Methods that sample answer differently, and an interrupted run has not asked all the same.
    """
    methods = run["methods"].values()
    prompts, looping, tokens = (
        spanned(entry[what] for entry in methods) for what in ("prompts", "looping_texts", "tokens")
    )
    kept = spanned(entry["without_looping"]["tokens"] for entry in methods)
    return (
        f"Prompts: {prompts}, with a looping output: {looping}. "
        f"Tokens: {tokens}, without looping outputs: {kept}.\n"
    )
