"""Writes docs/results.md, a page for each run in runs/data and the README's table of speeds.

No figure in them is typed.

    python runs/results.py

``keep.py`` puts runs into runs/data.
"""

from pathlib import Path

import click
from results_page.page import pages
from results_page.readme import with_speeds
from results_page.stored import load

ROOT = Path(__file__).parents[1]


@click.command()
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="Holds docs and runs.")
def main(root: Path) -> None:
    """Write the pages."""
    runs = load(root / "runs" / "data")
    readme = (root / "README.md").read_text(encoding="utf-8")
    for path, text in {**pages(runs), "README.md": with_speeds(readme, runs)}.items():
        (root / path).write_text(text, encoding="utf-8")
        click.echo(path)


if __name__ == "__main__":
    main()
