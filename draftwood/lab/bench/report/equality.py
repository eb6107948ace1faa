"""Where outputs left those of plain decoding, and which peers are missing."""

from collections.abc import Sequence

from draftwood.lab.bench.document import REFERENCE, Divergence, Document
from draftwood.lab.bench.report.words import number, terms, text
from draftwood.lab.bench.verdicts import of_method

HEADS = ("method", "prompt", "turn", "token", "expected", "found", "behind by", "rounding moves")


def equality(document: Document) -> str:
    """First differences of all methods; near ties, which rounding decides, folded."""
    found = [(m.name, d) for m in document.methods.values() for d in m.divergences]
    compared = any(m.compared for m in document.methods.values() if m.name != REFERENCE)
    if not found:
        said = (
            "Every compared output had plain decoding's tokens."
            if compared
            else "No output was compared."
        )
        return f"<p>{said}</p>"
    faults = [(name, d) for name, d in found if d.near_tie is False]
    others = [(name, d) for name, d in found if d.near_tie is not False]
    lines = "".join(
        f"<li>{text(m.name)}: {text(of_method(m, document.dtype))}</li>"
        for m in document.methods.values()
        if m.divergences
    )
    said = f"<ul>{lines}</ul>"
    if faults:
        said += f"<p>{len(faults)} first differences that rounding does not explain:</p>"
        said += _table(faults)
    if others:
        near = sum(d.near_tie is True for _, d in others)
        why = f"{near} near ties" if near == len(others) else f"{len(others)} others"
        said += f"<details><summary>{why}</summary>{_table(others)}</details>"
    return said


def missing(document: Document) -> str:
    """Peers that were to be run and were not, with the reasons; nothing if there are none."""
    if not document.missing:
        return ""
    return f"<section><h2>Missing</h2>{terms(dict(document.missing))}</section>"


def _table(found: Sequence[tuple[str, Divergence]]) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    rows = "".join(_row(name, divergence) for name, divergence in found)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Differences"><table><thead><tr>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(name: str, found: Divergence) -> str:
    tokens = "".join(
        f"<td>{'end' if token is None else token}</td>" for token in (found.expected, found.found)
    )
    gap, bound = (number(value, "{:.2g}") for value in (found.gap, found.bound))
    return (
        f'<tr><th scope="row">{text(name)}</th><td>{text(found.id)}</td><td>{found.turn}</td>'
        f"<td>{found.position}</td>{tokens}<td>{gap}</td><td>{bound}</td></tr>"
    )
