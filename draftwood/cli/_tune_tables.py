"""Tables and plots of measured step costs; plots need ``pip install draftwood[lab]``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fit import Sample
from draftwood.errors import DraftwoodError, need
from draftwood.files import check_apart, check_writable

_FORMATS = (".png", ".svg", ".pdf")


def check(path: Path, figures: Path | None = None) -> None:
    """Refuse a plot that could not be written, before anything is measured.

    Args:
        path: of the plot.
        figures: of the other output, if there is one.

    Raises:
        DraftwoodError: matplotlib is missing, the format is unknown, or the file cannot be written
            or is the other output.
    """
    need("matplotlib", "lab")
    if path.suffix not in _FORMATS:
        raise DraftwoodError(f"{path} is no plot file: end its name in {', '.join(_FORMATS)}")
    check_writable(path)
    check_apart([path, figures])


def plot(path: Path, curves: Mapping[str, Curve], samples: Mapping[str, Sequence[Sample]]) -> None:
    """Plot milliseconds by tokens, a panel per curve; points are measured, lines are fitted.

    Args:
        path: file to write; its suffix decides the format.
        curves: by title.
        samples: by title of their curve.
    """
    from matplotlib.figure import Figure

    from draftwood.lab.bench.plots.style import drawing

    with drawing():
        figure = Figure(figsize=(5.5 * len(curves), 4.0), layout="constrained")
        panels = figure.subplots(1, len(curves), squeeze=False)[0]
        for axes, (title, curve) in zip(panels, curves.items(), strict=True):
            loads = sorted({(sample.batch, sample.context) for sample in samples[title]})
            for i, (batch, context) in enumerate(loads):
                timed = [s for s in samples[title] if (s.batch, s.context) == (batch, context)]
                tokens = range(batch, max(s.tokens for s in timed) + 1)
                milliseconds = [1e3 * curve.seconds(n, context, batch) for n in tokens]
                label = f"{context // batch} cached" + (f" × {batch}" if batch > 1 else "")
                axes.plot(tokens, milliseconds, color=f"C{i}", label=label)
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
    """Cost of the target's forward for trees of one size.

    Attributes:
        nodes: drafted nodes of each sequence's tree.
        timed: measured seconds, or None.
        seconds: seconds by the curve.
        ratio: T(n)/T(1), relative to a forward without drafted nodes.
        break_even: accepted tokens that pay for the step, if drafts are free.
        break_even_chains: the same for a chain of each drafter, with a draft forward per node.
    """

    nodes: int
    timed: float | None
    seconds: float
    ratio: float
    break_even: float
    break_even_chains: tuple[float, ...]


def target_rows(
    costs: StepCosts,
    samples: Sequence[Sample],
    sizes: Sequence[int],
    context: int,
    batch: int,
) -> list[TargetRow]:
    """One row per tree size.

    Args:
        costs: fitted step costs.
        samples: measured forwards.
        sizes: nodes of each sequence's tree, root included.
        context: cached tokens of each sequence.
        batch: number of sequences.
    """
    timed = {(s.tokens, s.context, s.batch): s.seconds for s in samples}
    cached = context * batch
    one = costs.target.seconds(batch, cached, batch)
    plain = costs.step(batch, cached, batch)
    rows = []
    for size in sizes:
        tokens = size * batch
        levels = [batch] * (size - 1)
        chains = [
            costs.step(tokens, cached, batch, {source: levels}) / plain - 1
            for source in costs.drafters
        ]
        seconds = costs.target.seconds(tokens, cached, batch)
        rows.append(
            TargetRow(
                nodes=size - 1,
                timed=timed.get((tokens, cached, batch)),
                seconds=seconds,
                ratio=seconds / one,
                break_even=costs.step(tokens, cached, batch) / plain - 1,
                break_even_chains=tuple(chains),
            )
        )
    return rows
