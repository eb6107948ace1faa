"""The table of predicted and observed tokens and acceptance, for methods that predict any."""

from collections.abc import Iterator
from dataclasses import dataclass

from draftwood.lab.bench.document import Document, Method
from draftwood.lab.bench.figures import Reliability
from draftwood.lab.bench.forecast import EARLY
from draftwood.lab.bench.intervals import Ratio
from draftwood.lab.bench.report.words import interval, number, text

NOTE = (
    "For steps: the tokens they were predicted to commit, and did commit. For the candidates that "
    "a source was the first to offer: how many were predicted to be accepted if the node above "
    "them was, and how many were. The error is predicted over observed, less one: above 0 the "
    "prediction is too high. A late step is one before which the method had learnt from "
    f"{EARLY} others."
)
HEADS = ("method", "of", "number", "predicted", "observed", "error", "late number", "late error")


@dataclass(frozen=True)
class _Line:
    """Steps and their tokens, or the candidates of a source."""

    number: int
    predicted: float
    observed: int
    error: Ratio


_NONE = _Line(0, 0.0, 0, Ratio())


def reliability(document: Document) -> str:
    """The section; nothing if nothing was predicted."""
    rows = "".join(row for m in document.by_speed for row in _rows(m))
    if not rows:
        return ""
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    return (
        '<section id="reliability"><h2>Calibration: predicted and observed acceptance</h2>'
        f'<p class="note">{NOTE}</p>'
        '<div class="wide" tabindex="0" role="region" aria-label="Calibration"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _rows(method: Method) -> Iterator[str]:
    if method.reliability is None:
        return
    found = method.reliability
    whole, late = _lines(found.all_steps), _lines(found.late_steps)
    for source, line in whole.items():
        yield _row(method.name, source, line, late.get(source, _NONE))


def _lines(found: Reliability) -> dict[str | None, _Line]:
    """By source; None has the steps."""
    lines: dict[str | None, _Line] = {
        None: _Line(found.steps, found.predicted, found.committed, found.error)
    }
    for source, each in found.by_source.items():
        lines[source] = _Line(each.candidates, each.predicted, each.accepted, each.error)
    return lines


def _row(name: str, source: str | None, line: _Line, late: _Line) -> str:
    of = "steps, tokens" if source is None else f"candidates of {text(source)}"
    broken = text(name).replace(":", ":<wbr>")
    return (
        f'<tr><th scope="row">{broken}</th><td>{of}</td><td>{line.number}</td>'
        f"<td>{line.predicted:.1f}</td><td>{line.observed}</td>{_error(line.error)}"
        f"<td>{late.number}</td>{_error(late.error)}</tr>"
    )


def _error(error: Ratio) -> str:
    ends = interval(error, "{:+.1%}", " to ")
    small = f"<small>{ends}</small>" if ends else ""
    return f"<td>{number(error.middle, '{:+.1%}')}{small}</td>"
