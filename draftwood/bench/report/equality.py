"""Where outputs left those of plain decoding, and which peers are missing."""

from collections.abc import Sequence

from draftwood.bench.plots.record import REFERENCE, Divergence, Record
from draftwood.bench.report.words import number, terms, text

HEADS = ("method", "prompt", "turn", "token", "expected", "found", "gap of logits")


def equality(record: Record) -> str:
    """First differences of all methods; near ties, which rounding decides, folded."""
    found = [(m.name, d) for m in record.methods for d in m.divergences]
    compared = any(m.all.compared for m in record.methods if m.name != REFERENCE)
    if not found:
        said = (
            "Every compared output had plain decoding's tokens."
            if compared
            else "No output was compared."
        )
        return f"<p>{said}</p>"
    real = [(name, d) for name, d in found if not d.near_tie]
    ties = [(name, d) for name, d in found if d.near_tie]
    said = f"<p>{len(real)} outputs differ from plain decoding's otherwise than by a near tie.</p>"
    folded = (
        f"<details><summary>{len(ties)} near ties</summary>{_table(ties)}</details>" if ties else ""
    )
    return said + (_table(real) if real else "") + folded


def missing(record: Record) -> str:
    """Peers that were to be run and were not, with the reasons; nothing if there are none."""
    if not record.missing:
        return ""
    return f"<section><h2>Missing</h2>{terms(dict(record.missing))}</section>"


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
    gap = number(found.gap, "{:.2g}")
    return (
        f'<tr><th scope="row">{text(name)}</th><td>{text(found.id)}</td><td>{found.turn}</td>'
        f"<td>{found.position}</td>{tokens}<td>{gap}</td></tr>"
    )
