"""The figures on the page: matplotlib's SVG, made to fit beside others and the page's colours."""

import importlib
import re
from collections.abc import Mapping
from html import escape

from draftwood.bench import plots
from draftwood.bench.plots.palette import INK, LINE, MUTED, PAPER
from draftwood.bench.plots.reading import read

_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", PAPER: "--paper"}


def figures(document: Mapping[str, object]) -> str:
    """All figures, each with its title and what it means."""
    drawn, loops = plots.draw(document), read(document).loops
    from draftwood.bench.plots.style import rendered

    return "".join(
        _figure(name, rendered(figure, "svg").decode("utf-8"), loops)
        for name, figure in drawn.items()
    )


def _figure(name: str, svg: str, loops: str) -> str:
    module = importlib.import_module(f"{plots.__name__}.{name}")
    title = escape(module.TITLE)
    caption = escape(f"{module.CAPTION} {loops}." if loops else module.CAPTION)
    return (
        f'<figure class="plot" id="figure-{name}"><h3>{title}</h3>'
        f"{inline(svg, name, module.TITLE)}<figcaption>{caption}</figcaption></figure>"
    )


def inline(svg: str, name: str, label: str) -> str:
    """The ``svg`` element of a file of matplotlib's, for a page with several of them.

    Ids get ``name`` before them, metadata and the file's rule for all elements are left out, and
    the four colours of text and ground become the page's variables.
    """
    found = svg[svg.index("<svg") :]
    found = re.sub(r"\s*<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    found = re.sub(r"<style[^>]*>.*?</style>", "", found, flags=re.DOTALL)
    found = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", found)
    for colour, variable in _VARIABLES.items():
        found = re.sub(rf"(?<=: ){colour}\b", f"var({variable})", found)
    found = re.sub(r' width="[^"]*" height="[^"]*"', "", found, count=1)
    return found.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
