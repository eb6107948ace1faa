"""Draws cost curves beside what was timed, with matplotlib, which only this file imports.

It is an optional dependency: ``pip install draftwood[lab]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fit import Sample
from draftwood.errors import DraftwoodError, need
from draftwood.files import check_writable

_FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Refuse a picture that could not be drawn, before anything is measured.

    Raises:
        DraftwoodError: matplotlib is missing, or the file's format is unknown or its place cannot
            be written to.
    """
    need("matplotlib", "lab")
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


@dataclass(frozen=True)
class TargetRow:
    """The target's forward over trees of one size.

    Attributes:
        nodes: drafted nodes of each sequence's tree.
        timed: seconds as timed; None if this was not.
        seconds: by the curve.
        ratio: over a forward without drafted nodes, T(n)/T(1).
        break_even: for drafts that cost no forward.
        break_even_chain: for a chain of that many nodes, a draft forward each; None if no drafter
            was measured.
    """

    nodes: int
    timed: float | None
    seconds: float
    ratio: float
    break_even: float
    break_even_chain: float | None


@dataclass(frozen=True)
class LevelRow:
    """A drafter's level of one width: seconds as timed, by the curve, and over T(1)."""

    width: int
    timed: float | None
    seconds: float
    ratio: float


def target_rows(
    costs: StepCosts,
    samples: Sequence[Sample],
    sizes: Sequence[int],
    context: int,
    batch: int,
    source: str | None = None,
) -> list[TargetRow]:
    """One row for each size.

    Args:
        costs: of a step.
        samples: what was timed.
        sizes: tokens of each sequence's tree, root included.
        context: cached tokens of each sequence.
        batch: sequences.
        source: the drafter of chains, if there is one.
    """
    timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples}
    cached = context * batch
    one = costs.target.seconds(batch, cached, batch)
    plain = costs.step(batch, cached, batch)
    rows = []
    for size in sizes:
        tokens = size * batch
        chain = None
        if source is not None:
            levels = {source: [batch] * (size - 1)}
            chain = costs.step(tokens, cached, batch, levels) / plain - 1
        seconds = costs.target.seconds(tokens, cached, batch)
        rows.append(
            TargetRow(
                nodes=size - 1,
                timed=timed.get((tokens, cached, batch)),
                seconds=seconds,
                ratio=seconds / one,
                break_even=costs.step(tokens, cached, batch) / plain - 1,
                break_even_chain=chain,
            )
        )
    return rows


def level_rows(
    costs: StepCosts,
    source: str,
    samples: Sequence[Sample],
    widths: Sequence[int],
    context: int,
    batch: int,
) -> list[LevelRow]:
    """One row for each width of a level, in nodes of each sequence."""
    timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples}
    cached, level = context * batch, costs.drafters[source]
    one = costs.target.seconds(batch, cached, batch)
    found = [(width, level.seconds(width * batch, cached, batch)) for width in widths]
    return [
        LevelRow(width, timed.get((width * batch, cached, batch)), seconds, seconds / one)
        for width, seconds in found
    ]
