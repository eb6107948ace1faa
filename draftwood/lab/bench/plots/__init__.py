"""A benchmark's document as figures; one file for each, drawn with matplotlib.

matplotlib is optional and is imported when a figure is asked for.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from draftwood.errors import need
from draftwood.files import write_bytes
from draftwood.lab.bench.document import Document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = ("speedup", "efficiency", "depth", "source", "funnel", "reliability", "phases")
"""Modules here, in the order of the page: the result, then its causes, the phases' time last. Each
has a ``TITLE``, a ``CAPTION`` and ``draw(document) -> Figure | None``, None if the document has
nothing to show in it."""


def check() -> None:
    """Make sure that the libraries of figures and of the page are installed.

    Raises:
        DraftwoodError: one is missing.
    """
    for library in ("matplotlib", "scipy", "jinja2"):
        need(library, "lab")


def draw(document: Document) -> dict[str, "Figure"]:
    """The figures of a parsed document by name; those with nothing to show are left out.

    Raises:
        DraftwoodError: matplotlib is missing, or the document is not one that ``bench`` writes.
    """
    check()
    from draftwood.lab.bench.plots.style import drawing

    found = {}
    with drawing():
        for name in FIGURES:
            figure = importlib.import_module(f"{__name__}.{name}").draw(document)
            if figure is not None:
                found[name] = figure
    return found


def save(document: Document, directory: Path) -> list[Path]:
    """Write each figure into ``directory``, which must exist, as ``NAME.png`` and ``NAME.svg``.

    Returns:
        The files.

    Raises:
        DraftwoodError: as :func:`draw`.
    """
    figures, loops = draw(document), document.loops
    from draftwood.lab.bench.plots.style import footed, rendered

    paths = []
    for name, figure in figures.items():
        if loops:
            footed(figure, loops)
        for kind in ("png", "svg"):
            path = directory / f"{name}.{kind}"
            write_bytes(path, rendered(figure, kind))
            paths.append(path)
    return paths
