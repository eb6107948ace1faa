"""The tables of the page: figures of methods, searched settings, differences and calibration."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from draftwood.lab.bench.document import Divergence, Document, MethodResult
from draftwood.lab.bench.figures import Metrics, Reliability
from draftwood.lab.bench.intervals import Estimate, Ratio
from draftwood.lab.bench.loop_marks import marked
from draftwood.lab.bench.predictions import EARLY
from draftwood.lab.bench.report.words import UNKNOWN, interval, number

SPEED, SPEEDUP, TAU = "tokens/s", "× ar", "τ"
CALIBRATION = (
    "For steps: the tokens they were predicted to commit, and did commit. For the candidates that "
    "a source was the first to offer: how many were predicted to be accepted if the node above "
    "them was, and how many were. The error is predicted over observed, less one: above 0 the "
    "prediction is too high. A late step is one before which the method had learnt from "
    f"{EARLY} others."
)


@dataclass(frozen=True)
class Cell:
    """A value, small print below it, and the number to sort it by."""

    text: str
    small: str = ""
    key: float | None = None
    wrong: bool = False


@dataclass(frozen=True)
class Column:
    """Heading of a column, and its explanation."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Metric:
    """A column with a figure of methods.

    Attributes:
        text: heading.
        about: explanation.
        form: format of a value.
        of: the figure.
        of_text: whether it depends on the text, and is marked where outputs loop.
        of_drafts: whether it is meaningless if no method drafts with a model.
    """

    text: str
    about: str
    form: str
    of: Callable[[Metrics], Estimate]
    of_text: bool = False
    of_drafts: bool = False

    def cell(self, metrics: Metrics, looping: int) -> Cell:
        """The cell of one method, marked if ``looping`` outputs loop."""
        value = self.of(metrics)
        shown = marked(number(value.middle, self.form), looping)
        return Cell(shown, interval(value, self.form), value.middle)


@dataclass(frozen=True)
class HtmlTable:
    """A table whose first column has names of methods; a click on a heading may sort it."""

    label: str
    columns: Sequence[Column | Metric]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    sorted_by: str = ""
    note: str = ""


def _draft_efficiency(metrics: Metrics) -> Estimate:
    # A peer's draft forwards are not counted; its phases are unknown, too.
    return metrics.draft_efficiency if metrics.time_share else Ratio()


_OWN = {"of_text": True}
_DRAFTS = {"of_drafts": True}
COLUMNS = (
    Metric(SPEED, "tokens per second, median", "{:.1f}", lambda m: m.tokens_per_second, **_OWN),
    Metric(SPEEDUP, "speed-up over plain decoding", "{:.2f}", lambda m: m.speedup_vs_ar, **_OWN),
    Metric("× hf", "speed-up over transformers", "{:.2f}", lambda m: m.speedup_vs_hf, **_OWN),
    Metric(TAU, "tokens per target forward", "{:.2f}", lambda m: m.mean_acceptance_length, **_OWN),
    Metric("accepted", "share of drafted tokens", "{:.0%}", lambda m: m.acceptance_rate, **_OWN),
    Metric("δ", "draft forwards per target forward", "{:.2f}", _draft_efficiency, **_DRAFTS),
    Metric(
        "predicted",
        "speed-up predicted from τ, δ and costs",
        "{:.2f}",
        lambda m: Ratio(m.predicted_speedup),
        **_OWN,
        **_DRAFTS,
    ),
    Metric("first ms", "milliseconds to the first token", "{:.1f}", lambda m: m.ttft_ms),
    Metric("ms/token", "milliseconds per further token", "{:.2f}", lambda m: m.tpot_ms, **_OWN),
    Metric(
        "overhead",
        "milliseconds of a step outside the target",
        "{:.2f}",
        lambda m: m.overhead_ms_per_step,
    ),
    Metric("MB", "most memory used", "{:.0f}", lambda m: Ratio(m.peak_memory_mb)),
    Metric("loops", "outputs that loop", "{:.0f}", lambda m: Ratio(m.looping_texts)),
    Metric("repeats", "share of repeated 8-grams", "{:.0%}", lambda m: m.repeated_8grams),
)


def methods(document: Document) -> tuple[HtmlTable, HtmlTable]:
    """All figures of all methods, fastest first: of all outputs, and without looping ones."""
    whole = [(m, m) for m in document.by_speed]
    calm = [(m, m.without_looping) for m in document.by_speed]
    note = f"{document.loops}." if document.loops else ""
    return _methods("All outputs", whole, note), _methods("Without looping outputs", calm, "")


def _methods(label: str, rows: Sequence[tuple[MethodResult, Metrics]], note: str) -> HtmlTable:
    drafting = any(m.draft_efficiency.middle for _, m in rows)
    shown = [
        c
        for c in COLUMNS
        if any(c.of(m).middle is not None for _, m in rows) and (drafting or not c.of_drafts)
    ]
    same = Column("same", "prompts with the tokens of plain decoding, of those compared")
    body = [
        (
            method.name,
            [
                _same(method, metrics),
                *(c.cell(metrics, metrics.looping_texts if c.of_text else 0) for c in shown),
            ],
        )
        for method, metrics in rows
    ]
    return HtmlTable(label, [same, *shown], body, SPEED, note)


def _same(method: MethodResult, metrics: Metrics) -> Cell:
    if not metrics.compared:
        return Cell(UNKNOWN)
    rounding = f"{method.rounding_prompts} by rounding" if method.rounding_prompts else ""
    return Cell(
        f"{metrics.identical} of {metrics.compared}",
        rounding,
        metrics.identical / metrics.compared,
        wrong=bool(method.fault_prompts),
    )


def searched(document: Document) -> HtmlTable | None:
    """Each method as published and at its best setting; None if no setting was searched."""
    known = document.methods
    pairs = {} if document.best is None else document.best.methods
    pairs = {name: p for name, p in pairs.items() if {p.published, p.best} <= known.keys()}
    shown = [c for c in COLUMNS if c.text in (SPEED, SPEEDUP, TAU)]
    variants = ("as published", "best setting")
    columns = [*(Column(f"{c.text} {v}") for v in variants for c in shown), Column("setting")]
    rows = []
    for name, pair in pairs.items():
        both = (known[pair.published], known[pair.best])
        cells = [c.cell(m, m.looping_texts) for m in both for c in shown]
        rows.append((name, [*cells, Cell(pair.best)]))
    note = "The best settings were found on other prompts."
    label = "As published and at the best setting"
    return HtmlTable(label, columns, rows, note=note) if rows else None


def differences(document: Document, *, faults: bool) -> HtmlTable | None:
    """First differences from plain decoding: the faults, or all others; None if there are none."""
    names = ("prompt", "turn", "token", "expected", "found", "behind by", "rounding moves")
    rows = [
        (m.name, list(map(Cell, _difference(found))))
        for m in document.methods.values()
        for found in m.divergences
        if found.fault == faults
    ]
    label = "Faults" if faults else "Other differences"
    return HtmlTable(label, list(map(Column, names)), rows) if rows else None


def _difference(found: Divergence) -> Iterator[str]:
    yield from (found.id, str(found.turn), str(found.position))
    for token in (found.expected, found.found):
        yield "end" if token is None else str(token)
    yield from (number(found.gap, "{:.2g}"), number(found.bound, "{:.2g}"))


def calibration(document: Document) -> HtmlTable | None:
    """Predicted and observed tokens and acceptance; None if no method predicted any."""
    names = ("of", "number", "predicted", "observed", "error", "late number", "late error")
    rows = [(m.name, cells) for m in document.by_speed for cells in _calibration(m)]
    columns = list(map(Column, names))
    return HtmlTable("Calibration", columns, rows, note=CALIBRATION) if rows else None


def _calibration(method: MethodResult) -> Iterator[list[Cell]]:
    if method.reliability is None:
        return
    late = dict(_lines(method.reliability.late_steps))
    for of, (count, predicted, observed, error) in _lines(method.reliability.all_steps):
        late_count, _, _, late_error = late.get(of, (0, 0.0, 0, Ratio()))
        yield [
            *map(Cell, (of, f"{count}", f"{predicted:.1f}", f"{observed}")),
            _error(error),
            Cell(f"{late_count}"),
            _error(late_error),
        ]


def _lines(found: Reliability) -> Iterator[tuple[str, tuple[int, float, int, Ratio]]]:
    yield "steps, tokens", (found.steps, found.predicted, found.committed, found.error)
    for source, each in found.by_source.items():
        counts = (each.candidates, each.predicted, each.accepted, each.error)
        yield f"candidates of {source}", counts


def _error(error: Ratio) -> Cell:
    return Cell(number(error.middle, "{:+.1%}"), interval(error, "{:+.1%}", " to "))
