"""The kept runs: which of them may be printed, and what each says of itself.

Knows nothing of the page.
"""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import click

from draftwood.lab.bench.quiet import objection
from results_page.kept import LARGEST
from results_page.markdown import percent, spanned

SCHEMA = 3
SCRIPTS = Path(__file__).parents[1]

Run: TypeAlias = dict[str, Any]
"""A kept run; see :mod:`results_page.kept`."""
Runs: TypeAlias = dict[str, Run]
"""Runs by the names of their files."""


def load(directory: Path) -> Runs:
    """All kept runs of a directory, by name.

    Raises:
        ClickException: there is one that may not be printed.
    """
    found = {}
    for path in sorted(directory.glob("*.json.gz")):
        run: Run = json.loads(gzip.decompress(path.read_bytes()))
        if wrong := complaint(run):
            raise click.ClickException(f"{path.name} may not be printed: {wrong}")
        if path.stat().st_size > LARGEST:
            raise click.ClickException(f"{path.name} has more than {LARGEST} bytes")
        found[path.name.removesuffix(".json.gz")] = run
    return found


def complaint(run: Run) -> str:
    """Why no figure of a kept run may be printed; empty if all may."""
    if run.get("schema", SCHEMA) != SCHEMA:
        return (
            f"it has schema {run['schema']}, and this script reads schema {SCHEMA}: run the "
            "benchmark again with this version of Draftwood"
        )
    if not run.get("complete", True):
        return "it was interrupted: call its script again"
    git = run["provenance"].get("git")
    if not git or not git.get("commit"):
        return "it does not say at which commit it was made"
    if git.get("dirty"):
        return "there were changes beside its commit"
    made_by = run.get("made_by", {})
    script = SCRIPTS / made_by.get("script", "-")
    if not script.is_file() or not has_part(script.read_text(encoding="utf-8"), made_by["part"]):
        return f"no part of a script in runs/ makes it: {made_by}"
    disturbed = objection(run)
    if run["times"] and disturbed is not None:
        return f"it has times, and {disturbed}"
    return ""


def has_part(script: str, part: str) -> bool:
    """Whether a script has a part of that name."""
    parts = re.search(r'^run "([^"]*)" "\$@"$', script, re.MULTILINE)
    return parts is not None and part in parts[1].split()


def commit(run: Run) -> str:
    """Where the code stood that a run measured."""
    return str(run["provenance"]["git"]["commit"])


def by_commit(runs: Runs) -> Iterable[tuple[str, Runs]]:
    """Runs apart by their commits, each named as a line of text: no table mixes two."""
    found: dict[str, Runs] = {}
    for name, run in runs.items():
        found.setdefault(commit(run), {})[name] = run
    for each, own in found.items():
        yield f"All of commit `{each[:7]}`:\n", own


def origin(name: str, run: Run) -> str:
    """Where a table's figures come from, in one line, with the file that has the rest."""
    date = run["provenance"]["date"][:10]
    script, part = run["made_by"]["script"], run["made_by"]["part"]
    return (
        f"`{name}`: commit `{commit(run)[:7]}`, {date}, `runs/{script} {part}`, "
        f"[provenance](../runs/data/{name}.provenance.json)."
    )


def peers(run: Run) -> list[str]:
    """The methods that are other libraries' own."""
    return [name for name in run["methods"] if name.startswith(("hf", "llamacpp"))]


def cut(entry: dict[str, Any], name: str | None, *, loops: bool) -> dict[str, Any]:
    """The aggregates of one method: of all sets or one, with or without looping outputs."""
    chosen = entry if name is None else entry["by_set"][name]
    return chosen if loops else chosen["without_looping"]


def repeated(found: dict[str, Any]) -> str:
    """The share of repeated 8-grams in what some aggregates were taken on."""
    return percent(found["repeated_8grams"]["value"])


def sample(run: Run) -> str:
    """How many prompts a run had, how many tokens they came to, and how much of it is loops.

    Methods that sample answer differently.
    """
    methods = run["methods"].values()
    prompts, texts, looping, tokens = (
        spanned(entry[what] for entry in methods)
        for what in ("prompts", "texts", "looping_texts", "tokens")
    )
    kept = spanned(entry["without_looping"]["tokens"] for entry in methods)
    shares = [e["repeated_8grams"]["value"] for e in methods]
    known = sorted(share for share in shares if share is not None)
    share = " to ".join(dict.fromkeys(map(percent, (known[0], known[-1])))) if known else "-"
    return (
        f"Prompts: {prompts}. Outputs: {texts}, of which {looping} loop; "
        f"repeated 8-grams: {share}. Tokens: {tokens}, without looping outputs: {kept}.\n"
    )
