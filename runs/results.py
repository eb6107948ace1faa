"""Writes docs/results.md and a page for each run in runs/data; no figure in them is typed.

    python runs/results.py

``keep.py`` puts runs into runs/data.
"""

from pathlib import Path

import click
from results_page.page import pages
from results_page.stored import load

ROOT = Path(__file__).parents[1]


@click.command()
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="Holds docs and runs.")
def main(root: Path) -> None:
    """Write the pages."""
    for path, text in pages(load(root / "runs" / "data")).items():
        (root / path).write_text(text, encoding="utf-8")
        click.echo(path)


if __name__ == "__main__":
    main()
