"""TALON's tables beside its claims: figures by task, by budget, by threshold and by level."""

from collections.abc import Iterable
from typing import Any

from .markdown import estimate, number, table
from .papers import HEAD, SPEED, TAU, verdict
from .speed import PLAIN, loops
from .stored import UNKNOWN, Run, Runs, both, described, link


def talon(runs: Runs) -> Iterable[str]:
    """TALON beside EAGLE-3's tree: by task, by budget and by threshold."""
    yield from by_task(runs)
    for name, run in both(runs, "talon_sweeps"):
        yield f"{described(run)}; {loops(run['methods'][PLAIN])} of 8-grams repeated:"
        yield from sweeps(run)
        yield link(name)


def by_task(runs: Runs) -> Iterable[str]:
    """TALON over EAGLE-3's tree at equal budgets, by task of Spec-Bench."""
    for run in ("draft_tau_t0", "draft_tau_t1"):
        for name, found in both(runs, run):
            methods = found["methods"]
            ours, theirs = (methods.get(m, {}).get("by_task", {}) for m in (HEAD, "eagle3"))
            rows = [
                [
                    task,
                    str(ours[task]["prompts"]),
                    *(_ratio(ours[task], theirs[task], metric) for metric in (TAU, SPEED)),
                ]
                for task in ours
                if task in theirs
            ]
            if rows:
                header = [
                    f"`{HEAD}` over `eagle3`, {described(found)}",
                    "prompts",
                    "τ",
                    "tok/s",
                ]
                yield table(header, rows) + f"\n\n{link(name)}"


BUDGETS = (15, 31, 59, 95)
"""Most nodes of a tree, the root excluded (Figure 12)."""

THRESHOLDS = (0.01, 0.03, 0.04, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Values of mu (Figure 13 and beyond)."""

DEFAULTS = {"budget": 59, "mu": 0.03}
"""Settings of a method whose name has none."""

SHOWN = ("τ", "speed-up")
"""Columns of a method."""


def sweeps(run: Run) -> Iterable[str]:
    """τ and speed-ups over plain decoding by budget, and TALON's by its threshold."""
    rows = [
        [str(most), *(each for name in (HEAD, "eagle3") for each in _at(run, name, "budget", most))]
        for most in BUDGETS
    ]
    header = [f"{what} of `{name}`" for name in (HEAD, "eagle3") for what in SHOWN]
    yield table(["most nodes (Figure 12)", *header], rows)
    rows = [[f"{mu:g}", *_at(run, HEAD, "mu", mu)] for mu in THRESHOLDS]
    yield table(["μ (Figure 13)", *(f"{what} of `{HEAD}`" for what in SHOWN)], rows)


def _at(run: Run, method: str, setting: str, value: float) -> list[str]:
    """τ, and the speed-up over plain decoding with its interval, at a setting's value."""
    name = method if value == DEFAULTS[setting] else f"{method}:{setting}={value:g}"
    entry = run["methods"].get(name, {})
    return [number(entry.get(TAU, {}).get("value")), estimate(entry.get("speedup_vs_ar", UNKNOWN))]


def _ratio(ours: dict[str, Any], theirs: dict[str, Any], metric: str) -> str:
    found = [
        each.get(metric, {}).get("value", each.get(metric, {}).get("median"))
        for each in (ours, theirs)
    ]
    return number(found[0] / found[1]) if all(found) else "-"


EXPANSION = (1.18, 1.44)
"""Time of EAGLE-3's expansion of a level over TALON's (TALON's Figure 15)."""

PUBLISHED = ("0.7", "1.35", "5.0")
"""Exponents of q in that figure."""


def expansion(runs: Runs) -> Iterable[str]:
    """Time of one level of ten nodes outside of the model, EAGLE-3's over TALON's."""
    rows = []
    for threads, exponents in runs.get("level_cost", {}).get("milliseconds_by_threads", {}).items():
        for exponent, methods in exponents.items():
            levels = (methods.get(m, {}).get("full_level", {}) for m in ("eagle3", "talon"))
            theirs, ours = (each.get("all") for each in levels)
            ratio = theirs / ours if theirs and ours else None
            judged = verdict(ratio, *EXPANSION) if exponent in PUBLISHED else "-"
            rows.append(
                [threads, exponent, number(theirs, 3), number(ours, 3), number(ratio), judged]
            )
    if rows:
        header = ["threads", "exponent of q", "`eagle3`, ms", "`talon`, ms", "ratio"]
        vocabulary = runs["level_cost"]["provenance"]["settings"]["vocabulary"]
        yield (
            "Expansion of one level of ten nodes outside of the model, for a vocabulary of "
            f"{vocabulary:,} (TALON's Figure 15: 1.18 to 1.44 on a GPU, for 32,000 to 152,000); - "
            "where no level of a tree had ten nodes:\n\n"
            + table([*header, "verdict"], rows)
            + f"\n\n{link('level_cost')}"
        )
