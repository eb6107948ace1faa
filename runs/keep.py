"""Keeps results of runs: copies them from OUT, where scripts leave them, to runs/data.

    python runs/keep.py equality_greedy_1 equality_law_model

``results_page/stored.py`` says which members are stored and which runs are refused. Without
a NAME every result in OUT is taken; the first one that is refused ends the command.
"""

import json
from pathlib import Path

import click
from results_page.stored import compact, complaint, write

RUNS = Path(__file__).parent


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--out", type=click.Path(path_type=Path, exists=True), default=RUNS / "out")
@click.option("--data", type=click.Path(path_type=Path), default=RUNS / "data")
def main(names: tuple[str, ...], out: Path, data: Path) -> None:
    """Keep the results that are named, or all."""
    for name in names or sorted(path.stem for path in out.glob("*.part_of")):
        try:
            made_by, _, environment = (out / f"{name}.part_of").read_text().partition("\n")
            script, _, part = made_by.strip().partition(" ")
            run = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError as missing:
            raise click.ClickException(f"{name}: no file {missing.filename}") from None
        try:
            stored = compact(run, script, part, environment.strip())
            if wrong := complaint(stored):
                raise click.ClickException(wrong)
            write(stored, data, name)
        except click.ClickException as refused:
            raise click.ClickException(f"{name} is not stored: {refused.message}") from None
        click.echo(f"{data / name}.json.gz", err=True)


if __name__ == "__main__":
    main()
