"""``draftwood cache``: lists and deletes saved measurements."""

import time

import click
from rich.table import Table

from draftwood.cli._options import console
from draftwood.costs.cache import KINDS, clear, directory, entries


@click.command()
@click.option("--clear", "delete", is_flag=True, help="Delete the listed files.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="List or delete this kind only. Repeatable.",
)
def cache(delete: bool, kinds: tuple[str, ...]) -> None:
    """List or delete cached measurements.

    They are in the user's cache directory, or in the one that the environment variable
    DRAFTWOOD_CACHE names. Deleted measurements are repeated when needed.
    """
    found = [entry for entry in entries() if not kinds or entry.kind in kinds]
    if delete:
        clear(found)
        click.echo(f"deleted {_count(len(found))} from {directory()}")
        return
    click.echo(f"{_count(len(found))} in {directory()}")
    if not found:
        return
    table = Table("kind", "of", "measured", "bytes", box=None)
    for entry in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed))
        table.add_row(entry.kind, entry.about or "not readable", day, str(entry.size))
    console().print(table, markup=False)


def _count(files: int) -> str:
    return f"{files} file" if files == 1 else f"{files} files"
