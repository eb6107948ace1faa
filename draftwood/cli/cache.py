"""``draftwood cache``: what was measured and is kept, and a way to forget it."""

import time

import click
from rich.console import Console
from rich.table import Table

from draftwood.costs import cache as cached

_FILE_WIDTH = 120
"""Columns of the table where there is no terminal to ask."""


@click.command()
@click.option("--clear", is_flag=True, help="Delete what is listed.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(cached.KINDS),
    help="List or delete this kind only. Repeatable.",
)
def cache(clear: bool, kinds: tuple[str, ...]) -> None:
    """List what was measured on this machine and is kept: step costs and weight layouts.

    The directory is the user's cache directory, or the one that the environment variable
    DRAFTWOOD_CACHE names. What is deleted is measured anew when it is needed.
    """
    chosen = frozenset(kinds) or None
    found = [one for one in cached.entries() if chosen is None or one.kind in chosen]
    if clear:
        cached.clear(chosen)
        click.echo(f"deleted {_count(len(found))} from {cached.directory()}")
        return
    click.echo(f"{_count(len(found))} in {cached.directory()}")
    if not found:
        return
    table = Table("kind", "of", "measured", "bytes", box=None)
    for one in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed))
        table.add_row(one.kind, one.about or "not readable", day, str(one.size))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=_FILE_WIDTH)
    console.print(table)


def _count(files: int) -> str:
    return f"{files} file" if files == 1 else f"{files} files"
