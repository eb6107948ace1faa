"""Shares of a step's time by phase. The phases have pale colours that no method has."""

from matplotlib.figure import Figure

from draftwood.lab.bench.document import PHASES, Document
from draftwood.lab.bench.plots.style import LINE_HEIGHT, ON_FILL, PAPER, rows, sheet

TITLE = "Where the time goes"
CAPTION = (
    "Shares of the time after the prompt: drafting, the target's forward, verification, committing "
    "to the cache, drafters' learning, and what none of them covers. Other libraries' phases are "
    "not known."
)
COLOURS = ("#77aadd", "#ee8866", "#eedd88", "#bbcc33", "#ffaabb", "#c9ced4")
ROW = 18.0
LEGIBLE = 0.12
"""Smallest share that is written into its bar."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if no method's phases are known."""
    methods = [m for m in document.by_speed if m.time_share]
    if not methods:
        return None
    figure = sheet(ROW * len(methods) + 5 * LINE_HEIGHT)
    axes = figure.subplots()
    rows(axes, [m.name for m in methods])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    for phase, colour in zip(PHASES, COLOURS, strict=True):
        shares = [m.time_share.get(phase, 0.0) for m in methods]
        before = PHASES[: PHASES.index(phase)]
        starts = [sum(m.time_share.get(p, 0.0) for p in before) for m in methods]
        bars = axes.barh(
            range(len(methods)),
            shares,
            left=starts,
            height=0.78,
            color=colour,
            ec=PAPER,
            lw=0.6,
            label=phase,
        )
        numbers = [f"{100 * share:.0f}" if share >= LEGIBLE else "" for share in shares]
        axes.bar_label(bars, numbers, label_type="center", color=ON_FILL)
    figure.legend(loc="outside upper left", ncols=len(PHASES))
    return figure
