"""``draftwood cache``: lists and deletes what Draftwood keeps in the user's cache directory."""

import time

import click
from rich.table import Table

from draftwood.cli._options import console
from draftwood.costs import cache as measured
from draftwood.files import CacheEntry, cache_directory
from draftwood.kernels import compiled
from draftwood.models import converted


@click.command()
@click.option("--clear", "delete", is_flag=True, help="Delete the listed entries.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([*measured.KINDS, converted.KIND, compiled.KIND]),
    help="List or delete this kind only. Repeatable.",
)
def cache(delete: bool, kinds: tuple[str, ...]) -> None:
    """List or delete cached measurements, converted models and compiled code.

    They are in the user's cache directory, or in the one that the environment variable
    DRAFTWOOD_CACHE names. What is deleted is made again when it is needed.
    """
    found: list[CacheEntry] = []
    for module in (measured, converted, compiled):
        chosen = [each for each in module.entries() if not kinds or each.kind in kinds]
        found += chosen
        if delete:
            module.clear(chosen)
    if delete:
        click.echo(f"deleted {_count(len(found))} from {cache_directory()}")
        return
    click.echo(f"{_count(len(found))} in {cache_directory()}")
    if not found:
        return
    table = Table("kind", "of", "made", "bytes", box=None)
    for entry in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed))
        table.add_row(entry.kind, entry.about or "not readable", day, str(entry.size))
    console().print(table, markup=False)


def _count(entries: int) -> str:
    return f"{entries} entry" if entries == 1 else f"{entries} entries"
