"""Writes docs/results.md from the runs that are kept in runs/data; no figure in it is typed.

    python runs/results.py > docs/results.md

The sections are in ``results_page``, one subject a module; ``keep.py`` puts runs where this looks.
"""

from pathlib import Path

import click
from results_page.documents import load
from results_page.sections import page

DATA = Path(__file__).parent / "data"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=DATA)
def main(data: Path) -> None:
    """Print the page."""
    click.echo(page(load(data)), nl=False)


if __name__ == "__main__":
    main()
