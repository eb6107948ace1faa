"""``draftwood report``: writes a benchmark's results as a page and as plots."""

from pathlib import Path

import click

from draftwood.cli._options import PATH
from draftwood.errors import DraftwoodError
from draftwood.files import check_output, write_text
from draftwood.lab.bench import plots
from draftwood.lab.bench.document import load


@click.command()
@click.argument("run", type=PATH, metavar="RUN.json")
@click.option(
    "--html",
    "page",
    type=PATH,
    metavar="OUT.html",
    help="Write one self-contained HTML page.",
)
@click.option(
    "--plots",
    "directory",
    type=PATH,
    metavar="DIR",
    help="Write each plot to DIR, as PNG and SVG.",
)
def report(run: Path, page: Path | None, directory: Path | None) -> None:
    """Write a page and plots of a benchmark's results.

    RUN.json is the result of bench --json. Give --html, --plots or both. This needs the extra
    ``lab``: pip install 'draftwood[lab]'.
    """
    if page is None and directory is None:
        raise DraftwoodError("nothing to write: give --html OUT.html, --plots DIR or both")
    plots.check()
    if page is not None:
        check_output(page, [run])
    document = load(run)
    if page is not None:
        from draftwood.lab.bench.report.page import html

        write_text(page, html(document))
        click.echo(page)
    if directory is not None:
        for path in plots.save(document, _made(directory)):
            click.echo(path)


def _made(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DraftwoodError(
            f"cannot make {directory}: {error.strerror}; name another directory"
        ) from error
    return directory
