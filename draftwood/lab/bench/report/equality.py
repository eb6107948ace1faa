"""Where outputs left those of plain decoding, and which peers are missing."""

from collections.abc import Sequence

from draftwood.lab.bench.plots.record import REFERENCE, Divergence, Method, Record
from draftwood.lab.bench.report.words import number, terms, text
from draftwood.lab.bench.verdicts import verdict

HEADS = ("method", "prompt", "turn", "token", "expected", "found", "behind by", "rounding moves")


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
    faults = [(name, d) for name, d in found if d.near_tie is False]
    others = [(name, d) for name, d in found if d.near_tie is not False]
    lines = "".join(
        f"<li>{text(m.name)}: {text(of_method(m, record.dtype))}</li>"
        for m in record.methods
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


def of_method(method: Method, dtype: str) -> str:
    """The verdict on a method's tokens."""
    whole, rounding, faults = method.all, method.rounding_prompts, method.fault_prompts
    return verdict(whole.identical, whole.compared, rounding, faults, dtype)


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
    gap, bound = (number(value, "{:.2g}") for value in (found.gap, found.bound))
    return (
        f'<tr><th scope="row">{text(name)}</th><td>{text(found.id)}</td><td>{found.turn}</td>'
        f"<td>{found.position}</td>{tokens}<td>{gap}</td><td>{bound}</td></tr>"
    )
