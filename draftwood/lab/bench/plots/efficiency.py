"""Tokens per step against draft forwards per step (TALON, Figure 6).

The horizontal axis is δ, draft forwards per target forward. The vertical axis is τ, tokens
committed per target forward. On the oracle line τ = δ every draft forward brings one token; below
it drafts are wasted. Each method is one point over all rows, where the paper joins the points of
several data sets. Peers are left out: their drafts cannot be counted from outside.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.intervals import Estimate
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


@dataclass(frozen=True)
class _Point:
    """δ and τ of a method with their intervals."""

    name: str
    x: float
    y: float
    across: tuple[float, float]
    up: tuple[float, float]


def draw(document: Document) -> Figure | None:
    """The figure, or None if no method drafts with a model."""
    points = sorted(_points(document), key=lambda point: -point.y)
    if not any(point.x for point in points):
        return None
    figure = sheet(max(HEIGHT, 3 * LINE_HEIGHT + 1.2 * LINE_HEIGHT * len(points)))
    axes = figure.subplots()
    right = 1.08 * max(1.0, *(point.across[1] for point in points))
    high = 1.08 * max(1.0, *(point.up[1] for point in points))
    axes.set_xlim(-0.04 * right, right)
    axes.set_ylim(0, high)
    axes.set_xlabel("draft forwards per target forward, δ")
    axes.set_ylabel("tokens per target forward, τ")
    axes.grid(color=LINE)
    _oracle(axes, right, high)
    mark = method_marks(list(document.methods))
    for point in points:
        _draw(axes, point, mark[point.name])
    figure.legend(loc="outside right upper")
    return figure


def _points(document: Document) -> Iterator[_Point]:
    for m in document.methods.values():
        x, y = m.draft_efficiency, m.mean_acceptance_length
        if m.time_share and x.middle is not None and y.middle is not None:
            yield _Point(m.name, x.middle, y.middle, _bounds(x, x.middle), _bounds(y, y.middle))


def _bounds(of: Estimate, middle: float) -> tuple[float, float]:
    return (middle if of.low is None else of.low), (middle if of.high is None else of.high)


def _draw(axes: Axes, point: _Point, mark: Mark) -> None:
    axes.plot(point.across, [point.y] * 2, color=mark.colour, lw=1.2)
    axes.plot([point.x] * 2, point.up, color=mark.colour, lw=1.2)
    axes.plot(
        [point.x],
        [point.y],
        mark.marker,
        color=mark.colour,
        ms=6,
        mec=PAPER,
        mew=0.6,
        label=shortened(point.name),
    )


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
