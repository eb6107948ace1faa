"""Draws cost curves beside what was timed, with matplotlib, which only this file imports.

It is an optional dependency: ``pip install draftwood[plots]``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from draftwood.costs.curve import Curve
from draftwood.costs.fit import Sample
from draftwood.errors import DraftwoodError
from draftwood.extras import need
from draftwood.files import check_writable

_FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Refuse a picture that could not be drawn, before anything is measured.

    Raises:
        DraftwoodError: matplotlib is missing, or the file's format is unknown or its place cannot
            be written to.
    """
    need("matplotlib", "plots")
    if path.suffix not in _FORMATS:
        raise DraftwoodError(f"{path} is no kind of picture: name one of {', '.join(_FORMATS)}")
    check_writable(path)


def plot(path: Path, curves: Mapping[str, tuple[Curve, Sequence[Sample]]]) -> None:
    """Milliseconds by tokens, one panel a curve; points are what was timed, lines the curve.

    Args:
        path: the picture; its suffix decides the format.
        curves: by title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(curves), 4.0), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (title, (curve, samples)) in zip(panels, curves.items(), strict=True):
        loads = sorted({(sample.batch, sample.context) for sample in samples})
        for i, (batch, context) in enumerate(loads):
            timed = [s for s in samples if (s.batch, s.context) == (batch, context)]
            tokens = np.arange(batch, max(s.tokens for s in timed) + 1)
            seconds = curve.table(int(tokens[-1]), context, batch)[tokens]
            label = f"{context // batch} cached" + (f" × {batch}" if batch > 1 else "")
            axes.plot(tokens, seconds * 1e3, color=f"C{i}", label=label)
            axes.plot(
                [s.tokens for s in timed], [s.seconds * 1e3 for s in timed], "o", color=f"C{i}"
            )
        axes.set(title=title, xlabel="tokens", ylabel="milliseconds")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path)
