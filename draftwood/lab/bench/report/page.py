"""The whole page: ``page.html`` filled by Jinja2, with ``page.css`` and ``page.js``.

Jinja2 escapes everything that comes from a document. The page's security policy allows its own
script alone, so that a text which got past the escaping could not run either.
"""

import base64
import hashlib
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from draftwood.lab.bench import plots
from draftwood.lab.bench.document import REFERENCE, Document
from draftwood.lab.bench.plots.style import INK, LINE, MUTED, PAPER, rendered
from draftwood.lab.bench.report import heading, tables
from draftwood.lab.bench.report.traces import drawn, sources, visible
from draftwood.lab.bench.report.words import printable
from draftwood.lab.bench.verdicts import verdict
from draftwood.lab.picture.svg import colours, style

_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", PAPER: "--paper"}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class PageFigure:
    """A figure with its title and caption."""

    name: str
    title: str
    caption: str
    svg: Markup


def html(document: Document) -> str:
    """The page of a document.

    Raises:
        DraftwoodError: a library is missing, or an excerpt's tree is no tree.
    """
    return page(document, figures(document))


def page(document: Document, drawn_figures: Sequence[PageFigure] = ()) -> str:
    """The page with these figures."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    names = sources(document)
    model = document.provenance.get("model", {}).get("name")
    methods = document.methods.values()
    return (
        _environment()
        .get_template("page.html")
        .render(
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            tree_style=Markup(style(len(names))),
            # Accepted tokens have the colours of their sources in the trees.
            source_colours=colours(len(names), ".s{} {{ background: {} }}"),
            script=Markup(script),
            title=f"Draftwood benchmark: {model}" if model else "Draftwood benchmark",
            document=document,
            warnings=heading.warnings(document),
            sentences=heading.sentences(document),
            facts=heading.facts(document),
            methods=tables.methods(document),
            searched=tables.searched(document),
            settings={m.name: dict(m.settings) for m in methods if m.settings},
            figures=drawn_figures,
            calibration=tables.calibration(document),
            sources=names,
            drawn=drawn,
            compared=any(m.compared for m in methods if m.name != REFERENCE),
            verdicts=[(m.name, verdict(m, document.dtype)) for m in methods if m.divergences],
            faults=tables.differences(document, faults=True),
            others=tables.differences(document, faults=False),
            near_ties=sum(found.near_tie is True for m in methods for found in m.divergences),
        )
    )


def figures(document: Document) -> list[PageFigure]:
    """All figures of a document."""
    drawn, loops = plots.draw(document), document.loops
    found = []
    for name, figure in drawn.items():
        module = importlib.import_module(f"{plots.__name__}.{name}")
        caption = f"{module.CAPTION} {loops}." if loops else module.CAPTION
        svg = inline(rendered(figure, "svg").decode("utf-8"), name, module.TITLE)
        found.append(PageFigure(name, module.TITLE, caption, svg))
    return found


def inline(svg: str, name: str, label: str) -> Markup:
    """The ``svg`` element of a file written by matplotlib, which escapes its text.

    Ids get the prefix ``name``, metadata and the rule for all elements are left out, and the four
    colours of text and background become the page's variables.
    """
    found = svg[svg.index("<svg") :]
    found = re.sub(r"\s*<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    found = re.sub(r"<style[^>]*>.*?</style>", "", found, flags=re.DOTALL)
    found = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", found)
    for colour, variable in _VARIABLES.items():
        found = re.sub(rf"(?<=: ){colour}\b", f"var({variable})", found)
    found = re.sub(r' width="[^"]*" height="[^"]*"', "", found, count=1)
    return Markup(found.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1))


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters["visible"] = visible
    # A long name may break behind a colon.
    found.filters["breakable"] = lambda name: Markup(":<wbr>").join(printable(name).split(":"))
    return found


def _shown(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
