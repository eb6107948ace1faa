"""The whole page: the sections in their order, with the style and the script that belong to it.

``page.html`` is its frame, ``page.css`` and ``page.js`` lie beside it. The script is the page's own
and holds nothing of the document; the page's security policy allows that one script alone, so that
even a text that got past the escaping could not run.
"""

import base64
import hashlib
import importlib
import re
from html import escape
from importlib.resources import files
from string import Template

from draftwood.lab.bench import plots
from draftwood.lab.bench.document import Document
from draftwood.lab.bench.plots.style import INK, LINE, MUTED, PAPER
from draftwood.lab.bench.report.comparison import tables
from draftwood.lab.bench.report.equality import equality, missing
from draftwood.lab.bench.report.heading import disturbed, facts, interrupted, summary
from draftwood.lab.bench.report.reliability import reliability
from draftwood.lab.bench.report.traces import excerpts, legend, sources
from draftwood.lab.bench.report.words import text
from draftwood.lab.picture.layout import hue
from draftwood.lab.picture.svg import style

_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", PAPER: "--paper"}


def figures(document: Document) -> str:
    """All figures, each with its title and what it means."""
    drawn, loops = plots.draw(document), document.loops
    from draftwood.lab.bench.plots.style import rendered

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


def html(document: Document) -> str:
    """The page of a document.

    Raises:
        DraftwoodError: matplotlib is missing, or an excerpt's tree is no tree.
    """
    script = _file("page.js")
    names = sources(document)
    return Template(_file("page.html")).substitute(
        policy=f"script-src 'sha256-{_digest(script)}'",
        style=_file("page.css") + style(len(names)) + _colours(len(names)),
        script=script,
        title=text(_title(document)),
        warning=interrupted(document) + disturbed(document),
        facts=facts(document),
        summary=summary(document),
        tables=tables(document),
        figures=figures(document),
        reliability=reliability(document),
        traces=_traces(document, names),
        equality=equality(document),
        missing=missing(document),
    )


def _title(document: Document) -> str:
    name = document.provenance.get("model", {}).get("name")
    return f"Draftwood benchmark: {name}" if name else "Draftwood benchmark"


def _traces(document: Document, names: list[str]) -> str:
    if not document.excerpts:
        return "<p>The document quotes no outputs.</p>"
    return Template(_file("traces.html")).substitute(
        legend=legend(names), excerpts=excerpts(document, names)
    )


def _colours(count: int) -> str:
    """Of accepted tokens in traces: those of their sources in the trees."""
    light, dark = (
        "".join(f"\n.s{k} {{ background: hsl({hue(k)}, {fill}) }}" for k in range(count))
        for fill in ("75%, 86%", "45%, 26%")
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{{dark}\n}}\n"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
