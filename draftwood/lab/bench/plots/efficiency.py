"""Tokens per step against draft forwards per step (TALON, Figure 6).

The horizontal axis is δ, draft forwards per target forward. The vertical axis is τ, tokens
committed per target forward. On the oracle line τ = δ every draft forward brings one token; below
it drafts are wasted. Each method is one point over all rows, where the paper joins the points of
several data sets. Peers are left out: their drafts cannot be counted from outside.
"""

from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.intervals import Estimate, ends
from draftwood.lab.bench.plots.style import (
    DASHED,
    LINE,
    LINE_HEIGHT,
    MUTED,
    PAPER,
    Mark,
    method_marks,
    sheet,
    shortened,
)

TITLE = "Tokens per step and draft forwards per step"
CAPTION = (
    "τ: tokens committed for each forward of the target. δ: forwards of a draft model for each "
    "forward of the target; 0 for methods that copy or look up. On the dashed line every draft "
    "forward brings one token; in the shaded region drafts are wasted. With 95 % intervals, most "
    "tokens first. Other libraries' drafts cannot be counted and are left out."
)
HEIGHT = 260.0
"""Height of the figure if there are few methods, in points."""
WASTE = "#d55e00"
_Span: TypeAlias = tuple[float, float, float]
"""A figure between the ends of its interval."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if no method drafts with a model."""
    drafting = [m for m in document.methods.values() if m.time_share]
    points = [
        (m.name, _span(m.draft_efficiency), _span(m.mean_acceptance_length)) for m in drafting
    ]
    known = [(name, x, y) for name, x, y in points if x and y]
    known.sort(key=lambda point: -point[2][1])
    if not any(delta for _, (_, delta, _), _ in known):
        return None
    figure = sheet(max(HEIGHT, 3 * LINE_HEIGHT + 1.2 * LINE_HEIGHT * len(known)))
    axes = figure.subplots()
    right = 1.08 * max(1.0, *(x[2] for _, x, _ in known))
    high = 1.08 * max(1.0, *(y[2] for _, _, y in known))
    axes.set_xlim(-0.04 * right, right)
    axes.set_ylim(0, high)
    axes.set_xlabel("draft forwards per target forward, δ")
    axes.set_ylabel("tokens per target forward, τ")
    axes.grid(color=LINE)
    _oracle(axes, right, high)
    mark = method_marks(list(document.methods))
    for name, x, y in known:
        _draw(axes, x, y, mark[name], shortened(name))
    figure.legend(loc="outside right upper")
    return figure


def _span(of: Estimate) -> _Span | None:
    if of.middle is None:
        return None
    low, high = ends(of) or (of.middle, of.middle)
    return low, of.middle, high


def _draw(axes: Axes, across: _Span, up: _Span, mark: Mark, label: str) -> None:
    _, x, _ = across
    _, y, _ = up
    axes.plot(across[::2], [y] * 2, color=mark.colour, lw=1.2)
    axes.plot([x] * 2, up[::2], color=mark.colour, lw=1.2)
    axes.plot([x], [y], mark.marker, color=mark.colour, ms=6, mec=PAPER, mew=0.6, label=label)


def _oracle(axes: Axes, right: float, high: float) -> None:
    end = min(right, high)
    axes.plot([0, end], [0, end], color=MUTED, lw=1.2, ls=DASHED, zorder=1)
    axes.fill_between([0, end, right], [0, end, end], color=WASTE, alpha=0.14, lw=0, zorder=0)
    axes.text(right, 0.03 * high, "waste ", color=MUTED, ha="right", va="bottom")
    axes.annotate(
        "τ = δ",
        (end, end),
        (-10, 0),
        textcoords="offset points",
        color=MUTED,
        ha="right",
        va="top" if end == high else "center",
    )
