"""The whole page: the sections in their order, with the style and the script that belong to it.

``page.html`` is its frame, ``page.css`` and ``page.js`` lie beside it. The script is the page's own
and holds nothing of the document; the page's security policy allows that one script alone, so that
even a text that got past the escaping could not run.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from string import Template

from draftwood.bench.plots.reading import read
from draftwood.bench.plots.record import Record
from draftwood.bench.report.comparison import tables
from draftwood.bench.report.equality import equality, missing
from draftwood.bench.report.figures import figures
from draftwood.bench.report.heading import disturbed, facts, interrupted, summary
from draftwood.bench.report.reliability import reliability
from draftwood.bench.report.traces import excerpts, legend, sources
from draftwood.bench.report.words import text
from draftwood.picture.layout import hue
from draftwood.picture.vector import style


def html(document: Mapping[str, object]) -> str:
    """The page of a parsed document.

    Raises:
        DraftwoodError: the document is not one that ``bench`` writes, or matplotlib is missing.
    """
    record = read(document)
    script = _file("page.js")
    names = sources(record)
    return Template(_file("page.html")).substitute(
        policy=f"script-src 'sha256-{_digest(script)}'",
        style=_file("page.css") + style(len(names)) + _colours(len(names)),
        script=script,
        title=text(_title(record)),
        warning=interrupted(record) + disturbed(record),
        facts=facts(record),
        summary=summary(record),
        tables=tables(record),
        figures=figures(document),
        reliability=reliability(record),
        traces=_traces(record, names),
        equality=equality(record),
        missing=missing(record),
    )


def _title(record: Record) -> str:
    model = record.provenance.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    return f"Draftwood benchmark: {name}" if name else "Draftwood benchmark"


def _traces(record: Record, names: list[str]) -> str:
    if not record.excerpts:
        return "<p>The document quotes no outputs.</p>"
    return Template(_file("traces.html")).substitute(
        legend=legend(names), excerpts=excerpts(record, names)
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
