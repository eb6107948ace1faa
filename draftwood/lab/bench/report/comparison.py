"""The table of methods: every headline figure with its interval, sortable where scripts run.

Two tables, of all outputs and without looping ones; a script shows one of them at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftwood.lab.bench.document import Document, Method
from draftwood.lab.bench.figures import Metrics
from draftwood.lab.bench.intervals import Estimate, Ratio
from draftwood.lab.bench.loop_marks import marked
from draftwood.lab.bench.report.words import UNKNOWN, interval, number, terms, text

SORTED_BY = "tokens/s"
SAME = "prompts with the tokens of plain decoding, of those compared"


@dataclass(frozen=True)
class Column:
    """A figure: its heading, what it is, how to get it and how to write it.

    ``of_text``: whether it depends on the text, so that it is marked where outputs loop;
    ``of_drafts``: whether it says nothing where nobody drafts with a model.
    """

    heading: str
    about: str
    of: Callable[[Metrics], Estimate]
    form: str
    of_text: bool = False
    of_drafts: bool = False


def _tokens_per_second(metrics: Metrics) -> Estimate:
    return metrics.tokens_per_second


def _efficiency(metrics: Metrics) -> Estimate:
    # Peers, whose phases are not known, draft where nobody counts.
    return metrics.draft_efficiency if metrics.time_share else Ratio()


def _predicted(metrics: Metrics) -> Estimate:
    return Ratio(metrics.predicted_speedup)


def _memory(metrics: Metrics) -> Estimate:
    return Ratio(metrics.peak_memory_mb)


def _loops(metrics: Metrics) -> Estimate:
    return Ratio(metrics.looping_texts)


def _repeated(metrics: Metrics) -> Estimate:
    return metrics.repeated_8grams


COLUMNS = (
    Column(
        SORTED_BY,
        "tokens per second, median over prompts",
        _tokens_per_second,
        "{:.1f}",
        of_text=True,
    ),
    Column(
        "× ar", "speed-up over plain decoding", lambda m: m.speedup_vs_ar, "{:.2f}", of_text=True
    ),
    Column(
        "× hf",
        "speed-up over transformers' own",
        lambda m: m.speedup_vs_hf,
        "{:.2f}",
        of_text=True,
    ),
    Column(
        "τ",
        "tokens committed per forward of the target",
        lambda m: m.mean_acceptance_length,
        "{:.2f}",
        of_text=True,
    ),
    Column(
        "accepted",
        "share of drafted tokens accepted",
        lambda m: m.acceptance_rate,
        "{:.0%}",
        of_text=True,
    ),
    Column("δ", "draft forwards per target forward", _efficiency, "{:.2f}", of_drafts=True),
    Column(
        "predicted",
        "speed-up predicted from τ, δ and costs",
        _predicted,
        "{:.2f}",
        of_text=True,
        of_drafts=True,
    ),
    Column("first ms", "milliseconds to the first token", lambda m: m.ttft_ms, "{:.1f}"),
    Column(
        "ms/token",
        "milliseconds for each further token",
        lambda m: m.tpot_ms,
        "{:.2f}",
        of_text=True,
    ),
    Column(
        "overhead",
        "milliseconds of a step outside the target",
        lambda m: m.overhead_ms_per_step,
        "{:.2f}",
    ),
    Column("MB", "most memory used", _memory, "{:.0f}"),
    Column("loops", "outputs that loop", _loops, "{:.0f}"),
    Column("repeats", "share of 8-grams seen earlier in the same output", _repeated, "{:.0%}"),
)


def tables(document: Document) -> str:
    """Both tables, and the settings of the methods folded."""
    rows = document.by_speed
    whole = [(m, m) for m in rows]
    calm = [(m, m.without_looping) for m in rows]
    settings = {m.name: dict(m.settings) for m in document.methods.values() if m.settings}
    folded = (
        f"<details><summary>Settings of the methods</summary>{terms(settings)}</details>"
        if settings
        else ""
    )
    return (
        _table("all", "All outputs", whole, document.loops)
        + _table("calm", "Without looping outputs", calm, "")
        + _searched(document)
        + folded
    )


def _searched(document: Document) -> str:
    """Each method as published and at its best setting; nothing if no setting was searched."""
    known, searched = document.methods, document.best
    pairs = {} if searched is None else searched.methods
    pairs = {name: p for name, p in pairs.items() if {p.published, p.best} <= known.keys()}
    if not pairs:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th>{_three(known[each.published])}'
        f"{_three(known[each.best])}<td>{text(each.best)}</td></tr>"
        for name, each in pairs.items()
    )
    heads = "".join(
        f'<th scope="col">{figure} {which}</th>'
        for which in ("as published", "best setting")
        for figure in (SORTED_BY, "× ar", "τ")
    )
    label = "As published and at the best setting"
    return (
        f'<h3>{label}</h3><p class="note">The best settings were found on other prompts.</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>'
        f'<th scope="col">method</th>{heads}<th scope="col">setting</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _three(metrics: Metrics) -> str:
    shown = [c for c in COLUMNS if c.heading in (SORTED_BY, "× ar", "τ")]
    return "".join(_cell(c.of(metrics), c.form, metrics.looping_texts) for c in shown)


def _table(variant: str, heading: str, rows: Sequence[tuple[Method, Metrics]], loops: str) -> str:
    drafting = any(m.draft_efficiency.middle for _, m in rows)
    columns = [
        c
        for c in COLUMNS
        if any(c.of(m).middle is not None for _, m in rows) and (drafting or not c.of_drafts)
    ]
    heads = "".join(_head(c.heading, c.about) for c in columns)
    below = f'<p class="note">{text(loops)}.</p>' if loops else ""
    body = "".join(_row(method, metrics, columns) for method, metrics in rows)
    return (
        f'<div class="variant" data-variant="{variant}"><h3>{heading}</h3>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{heading}">'
        '<table class="sortable"><thead><tr><th scope="col" data-kind="text">method</th>'
        f"{_head('same', SAME)}{heads}</tr></thead><tbody>{body}</tbody></table></div>{below}</div>"
    )


def _head(heading: str, about: str) -> str:
    order = ' aria-sort="descending"' if heading == SORTED_BY else ""
    return f'<th scope="col" data-kind="number" title="{text(about)}"{order}>{heading}</th>'


def _row(method: Method, metrics: Metrics, columns: Sequence[Column]) -> str:
    cells = "".join(
        _cell(c.of(metrics), c.form, metrics.looping_texts if c.of_text else 0) for c in columns
    )
    # A line of a long name ends behind a colon.
    broken = text(method.name).replace(":", ":<wbr>")
    return f'<tr><th scope="row">{broken}</th>{_same(method, metrics)}{cells}</tr>'


def _cell(value: Estimate, form: str, loops: int) -> str:
    ends = interval(value, form)
    small = f"<small>{ends}</small>" if ends else ""
    return f"<td{_key(value.middle)}>{marked(number(value.middle, form), loops)}{small}</td>"


def _same(method: Method, metrics: Metrics) -> str:
    if not metrics.compared:
        return f"<td>{UNKNOWN}</td>"
    wrong = ' class="wrong"' if method.fault_prompts else ""
    key = _key(metrics.identical / metrics.compared)
    why = f"<small>{method.rounding_prompts} by rounding</small>" if method.rounding_prompts else ""
    return f"<td{key}{wrong}>{metrics.identical} of {metrics.compared}{why}</td>"


def _key(value: float | None) -> str:
    return "" if value is None else f' data-key="{value:.9g}"'
